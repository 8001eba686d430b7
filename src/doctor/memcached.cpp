#include "memcached/memcached.hpp"

#include "base/text.hpp"
#include "doctor/checks.hpp"

namespace dlock {
namespace {

constexpr ShortVersion least_memcached{1, 6};
constexpr const char* label = "efficiency only: it forgets locks when it is full or restarts";

}  // namespace

Findings check_memcached(const MemcachedFacts& facts) {
  const ServerInfo &stats = facts.stats, &settings = facts.settings;
  const Finding reach = check_reach(
      facts, advice_on(facts.unreachable.cause, "is it running, and do address and firewall fit?"));
  const auto evictions = stats.number("evictions");
  const auto used = stats.number("bytes").value_or(0) >> 20;
  const auto most = stats.number("limit_maxbytes").value_or(0) >> 20;
  const std::string space = sentence("{} of {} MB in use", used, most);
  return first_rows({
      {"reach", true, reach, reach.level == Level::error},
      {"engine", true, check_versions("memcached", {stats.shown("version")}, least_memcached)},
      {"clock", true, check_clock(facts.clock, "times shown are off, and fences after a restart")},
      {"memory", settings.text("evictions") == "off",
       warn(space + ", and it evicts nothing: when it is full, a write that fails removes the lock",
            "run it without -M, and with enough memory (-m)")},
      {"memory", !evictions, not_told("stats")},
      {"memory", evictions != 0,
       warn(sentence("{}, and {} evicted since it started: locks may be among them", space,
                     counted(evictions.value_or(0), "value")),
            "more memory (-m), or a memcached for locks only")},
      {"memory", true, good(space + ", nothing evicted since it started")},
      {"tls", true, check_plain_text(facts.here, "a network of its own, or a tunnel")},
      {"user", true, good("none: everybody may change the values")},
      {"lock", true, check_lock(facts.trial)},
      {"label", true, good(label)},
  });
}

Diagnosis diagnose(const MemcachedTarget& target, const DoctorOptions& options,
                   const OpenStore& open) {
  MemcachedFacts facts;
  facts.options = options;
  facts.here = is_this_host(target.at.host);
  MemcachedClient client(target.at, target.name());
  const auto ask = [&](const std::string& group) {
    client.connect(short_call());
    return ServerInfo{client.stats(group, short_call()), {}};
  };
  const auto clock = [&]() -> std::optional<WallTime> {
    const auto time = ask("").number("time");
    if (!time) return std::nullopt;
    return WallTime(std::chrono::seconds(*time));
  };
  const auto rest = [&] {
    facts.stats = ask("");
    facts.settings = ask("settings");
    facts.trial = try_lock(open, scratch_key(), target.name());
  };
  examine(facts, target.name(), clock, rest, memcached_clock_unsure);
  return {target.name(), label, check_memcached(facts)};
}

std::string rights_text(const MemcachedTarget&, const DoctorOptions&) {
  throw_usage("--acl: memcached has no rights");
}

}  // namespace dlock
