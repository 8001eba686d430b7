#include "doctor/checks.hpp"

#include <array>
#include <cstdio>

#include "base/duration.hpp"
#include "base/random.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"

namespace dlock {
namespace {

constexpr milliseconds scratch_ttl{10'000};
constexpr int clock_readings = 5;

constexpr std::pair<Cause, const char*> advices[] = {
    {Cause::password_missing, "give one; dlock doctor --acl prints a user to make"},
    {Cause::password_wrong, "check user and password; dlock doctor --acl prints a user to make"},
    {Cause::password_unneeded, "unset it, or set requirepass there"},
    {Cause::protected_mode, "give it a password, then protected-mode no"},
    {Cause::acl, "grant what is missing; dlock doctor --acl prints all"},
    {Cause::no_such_database, "another number in --server, or none"},
    {Cause::too_many_clients, "raise its limit of clients (maxclients, max_connections)"},
    {Cause::out_of_memory, "raise maxmemory, or make room"},
    {Cause::cannot_save, "fix its disk: see its log and INFO persistence"},
    {Cause::too_few_replicas, "bring the replicas back: see replication"},
    {Cause::read_only, "name the master in --server"},
    {Cause::loading, "wait until it has started"},
    {Cause::busy, "wait, or end that script: SCRIPT KILL"},
    {Cause::not_replicated, "more replicas, or a smaller --replicas"},
    {Cause::not_looked_up, "fix the name in --server, or DNS"},
    {Cause::no_tls, "make the scheme of --server fit it"},
    {Cause::tls_failed, "make the scheme of --server fit it"},
    {Cause::old_tls, "let it speak TLS 1.2 or newer"},
    {Cause::tls_interrupted, "is it overloaded, or no server of TLS?"},
    {Cause::certificate, "make --tls-ca, --tls-cert or --tls-server-name fit"},
    {Cause::certificate_expired, "renew its certificate"},
    {Cause::other_protocol, "name the host and port of a Redis in --server"}};

Claim claim_on(const LockKey& key) {
  Claim claim;
  claim.key = key;
  claim.owner = new_owner_below(std::nullopt);
  claim.token = new_token(claim.owner);
  claim.ttl = scratch_ttl;
  claim.who = this_process("dlock-doctor", "");
  return claim;
}

void require(bool as_expected, const char* otherwise_told) {
  if (!as_expected) throw_unavailable(otherwise_told);
}

std::chrono::nanoseconds hand_over(Store& first, Store& second, const Claim& held,
                                   const Claim& waiting) {
  const bool excludes =
      std::holds_alternative<Grant>(first.acquire(held, {}, short_call())) &&
      std::holds_alternative<Refusal>(second.acquire(waiting, {true, {}}, short_call()));
  require(excludes, "a free key was refused, or a held one granted to another");
  const Deadline begun = BootClock::now();
  first.release(held, {}, short_call());
  require(second.sleep(waiting, short_call().deadline, -1).why == Wake::Reason::granted,
          "a waiter was not told that its lock was free");
  const auto taken = BootClock::now() - begun;
  require(second.renew(waiting, {}, short_call()).grant &&
              second.release(waiting, {}, short_call()).outcome == Released::yes,
          "a lock that was handed over was lost at once");
  return taken;
}

std::chrono::nanoseconds read_clock(const std::function<std::optional<WallTime>()>& clock,
                                    Contact& facts) {
  const WallTime here = wall_now();
  const Deadline sent = BootClock::now();
  const auto server = clock();
  const std::chrono::nanoseconds taken = BootClock::now() - sent;
  const auto unsure = taken / 2;
  if (server && (!facts.clock || unsure < facts.clock->unsure)) {
    facts.clock = ClockOffset{*server - (here + unsure), unsure};
  }
  return taken;
}

}  // namespace

std::optional<std::string> ServerInfo::text(const std::string& name) const {
  const auto found = values.find(name);
  return found == values.end() ? std::nullopt : std::optional(found->second);
}

std::optional<long long> ServerInfo::number(const std::string& name) const {
  // No server reports a larger number, and sums of smaller ones do not overflow.
  constexpr long long most = 1'000'000'000'000'000;
  return parse_number(text(name).value_or(""), 0, most);
}

std::string ServerInfo::shown(const std::string& name) const {
  return escaped(text(name).value_or(""));
}

void examine(Contact& facts, const std::string& shown,
             const std::function<std::optional<WallTime>()>& clock,
             const std::function<void()>& rest, milliseconds behind) {
  try {
    facts.connected_in = read_clock(clock, facts);
    std::vector<std::chrono::nanoseconds> taken;
    for (int i = 0; i < clock_readings; ++i) taken.push_back(read_clock(clock, facts));
    std::sort(taken.begin(), taken.end());
    facts.round_trip = taken[clock_readings / 2];
    if (facts.clock) {
      facts.clock->ahead += behind / 2;
      facts.clock->unsure += behind / 2;
    }
    rest();
  } catch (const Error& error) {
    const ErrorKind kind = error.kind();
    const bool is_of_here = kind == ErrorKind::usage || kind == ErrorKind::host_refused;
    if (is_of_here && error.cause() != Cause::other_reply) throw;
    facts.unreachable = {bare_trouble(error.what(), shown), error.cause()};
  }
}

LockKey scratch_key() {
  constexpr std::size_t bytes_of_a_name = 8;
  return LockKey{"dlock-doctor-" + random_hex(bytes_of_a_name)};
}

TrialLock try_lock(const OpenStore& open, const LockKey& key, const std::string& shown) {
  const StorePtr first = open(), second = open();
  const Claim held = claim_on(key), waiting = claim_on(key);
  try {
    return {{}, hand_over(*first, *second, held, waiting)};
  } catch (const Error& error) {
    // The leases expire by themselves.
    return {{bare_trouble(error.what(), shown, key.text), error.cause()}, {}};
  }
}

std::string bare_trouble(std::string message, const std::string& name, const std::string& key) {
  for (const std::string& front : {name + ": ", key + ": "}) {
    if (message.starts_with(front)) message.erase(0, front.size());
  }
  return message;
}

bool are_on_this_host(const std::vector<Endpoint>& servers) {
  return std::all_of(servers.begin(), servers.end(),
                     [](const Endpoint& each) { return is_this_host(each.host); });
}

std::string user_of(const Endpoint& server, const char* otherwise) {
  return server.user ? escaped(*server.user) : otherwise;
}

Findings first_rows(std::initializer_list<Check> table) {
  Findings findings;
  for (const Check& row : table) {
    if (!row.holds || (!findings.empty() && findings.back().check == row.name)) continue;
    findings.push_back(row.finding);
    findings.back().check = row.name;
    if (row.ends) break;
  }
  return findings;
}

void append(Findings& to, Findings more) {
  for (Finding& each : more) to.push_back(std::move(each));
}

std::string filled_in(std::string_view form, std::initializer_list<std::string> parts) {
  std::string text;
  for (const std::string& part : parts) {
    const auto at = form.find("{}");
    if (at == std::string_view::npos) break;
    text += std::string(form.substr(0, at)) + part;
    form.remove_prefix(at + 2);
  }
  return text + std::string(form);
}

std::string span_text(std::chrono::nanoseconds span) {
  constexpr double least_shown = 0.01;
  const double ms = std::max(std::chrono::duration<double, std::milli>(span).count(), least_shown);
  const double number = ms < 1000 ? ms : ms / 1000;
  std::array<char, 64> text{};
  const int decimals = number < 1 ? 2 : number < 10 ? 1 : 0;
  std::snprintf(text.data(), text.size(), "%.*f%s", decimals, number, ms < 1000 ? " ms" : " s");
  return text.data();
}

std::string counted(long long number, const std::string& noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
}

bool is_older(const std::string& version, ShortVersion least) {
  std::string_view rest = version;
  const auto major = parse_number(take_until(rest, '.'), 0, 1000);
  const auto minor = parse_number(rest.substr(0, rest.find_first_not_of("0123456789")), 0, 1000);
  return major && minor && ShortVersion{*major, *minor} < least;
}

std::string advice_on(Cause cause, const char* otherwise) {
  for (const auto& [named, advice] : advices) {
    if (named == cause) return advice;
  }
  return otherwise;
}

std::string advice_on_reach(Cause cause) {
  return advice_on(cause, is_reply(cause)
                              ? "see the server's log"
                              : "is it running, and do address, port and firewall fit?");
}

Finding check_reach(const Contact& facts, const std::string& advice) {
  const bool broke_off = facts.round_trip.count() > 0;
  if (!facts.unreachable.empty()) {
    return bad(facts.unreachable.text, broke_off ? "see the server's log" : advice);
  }
  const std::string text = sentence("connected in {}, answers in {}", span_text(facts.connected_in),
                                    span_text(facts.round_trip));
  return warn_if_slow(good(text), facts.round_trip, facts.options.ttl);
}

Finding warn_if_slow(const Finding& finding, std::chrono::nanoseconds round_trip,
                     milliseconds ttl) {
  // A renewal needs room for several attempts within ttl/3.
  if (finding.level != Level::ok || round_trip <= ttl / 30) return finding;
  return warn(finding.text + ": slow for a ttl of " + human_duration(ttl),
              "a nearer server, or a longer -t");
}

Finding check_versions(const std::string& engine, const std::set<std::string>& versions,
                       ShortVersion least) {
  const std::string text =
      engine + " " + joined(versions, ", ", [](const std::string& each) { return escaped(each); });
  const bool old = std::any_of(versions.begin(), versions.end(),
                               [&](const auto& version) { return is_older(version, least); });
  if (!old) return good(text);
  return bad(sentence("{}: dlock needs {}.{} or later", text, least.first, least.second),
             "upgrade it");
}

Finding check_lock(const std::optional<TrialLock>& trial, const char* advice) {
  if (!trial) return {};
  if (!trial->trouble.empty()) {
    return bad("cannot be held: " + trial->trouble.text, advice_on(trial->trouble.cause, advice));
  }
  return good(
      sentence("acquired, handed over in {}, renewed, released", span_text(trial->handed_over_in)));
}

Finding check_plain_text(bool here, const char* advice) {
  if (here) return good("none, on this host");
  return warn("none: anyone on the network path can change locks", advice);
}

Finding check_clock(const std::optional<ClockOffset>& clock, const std::string& consequence) {
  constexpr std::chrono::seconds tolerable{1};
  if (!clock) return not_told("TIME");
  const auto off = std::chrono::abs(clock->ahead);
  if (off - clock->unsure <= tolerable) {
    return good("within " + span_text(off + clock->unsure) + " of this host's");
  }
  return warn(sentence("{} {} this host's: {}", span_text(off),
                       off == clock->ahead ? "ahead of" : "behind", consequence),
              "NTP on both hosts");
}

}  // namespace dlock
