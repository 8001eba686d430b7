#include "doctor/checks.hpp"

#include <algorithm>
#include <cstdint>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"

namespace dlock {
namespace {

/// The limit for each request; a usable server needs a fraction of it.
constexpr milliseconds longest_request{2000};
constexpr milliseconds scratch_ttl{10'000};
constexpr int clock_readings = 5;
/// Long enough that one percent of it exceeds a round trip in a data centre.
constexpr milliseconds pause_for_the_pace{300};

CallOptions call_options() { return {later(BootClock::now(), longest_request), -1}; }

Claim claim_on(const LockKey& key) {
  Claim claim;
  claim.key = key;
  claim.owner = new_owner_below(std::nullopt);
  claim.token = new_token(claim.owner);
  claim.ttl = scratch_ttl;
  claim.who = this_process("dlock-doctor", "");
  return claim;
}

[[noreturn]] void unexpected(const std::string& what) { throw Error(ErrorKind::unavailable, what); }

void release_trial(Store& store, const Claim& claim) {
  try {
    store.release(claim, {ReleaseMode::ignore_floor}, call_options());
  } catch (const Error&) {
    // doctor reports the first failure; this lease expires by itself.
  }
}

std::chrono::nanoseconds hand_over(Store& first, Store& second, const Claim& held,
                                   const Claim& waiting) {
  if (!std::holds_alternative<Grant>(first.acquire(held, {}, call_options()))) {
    unexpected("a free key was refused");
  }
  const Answer answer = second.acquire(waiting, {true, std::nullopt}, call_options());
  if (!std::holds_alternative<Refusal>(answer)) unexpected("a held key was granted to another");
  const Deadline begun = BootClock::now();
  if (first.release(held, {}, call_options()).outcome != Released::yes) {
    unexpected("a lock was lost at once");
  }
  if (second.sleep(waiting, call_options().deadline, -1).why != Wake::Reason::granted) {
    unexpected("a waiter was not told that its lock was free");
  }
  const auto taken = BootClock::now() - begun;
  if (!second.renew(waiting, {}, call_options()).grant) {
    unexpected("a lock that was handed over could not be renewed");
  }
  if (second.release(waiting, {}, call_options()).outcome != Released::yes) {
    unexpected("a lock could not be released");
  }
  return taken;
}

/// The pace of the server's clock relative to this host's. The readings allow a range; this is the
/// value in it that is nearest to 1.
double pace_of(const std::vector<ClockSample>& clock) {
  const ClockSample& first = clock.front();
  const ClockSample& last = clock.back();
  const std::chrono::duration<double> there = last.server - first.server;
  const std::chrono::duration<double> longest = last.received - first.sent;
  const std::chrono::duration<double> shortest = last.sent - first.received;
  if (shortest.count() <= 0) return 1;
  if (there > longest) return there / longest;
  if (there < shortest) return there / shortest;
  return 1;
}

/// The share in whole percent. <cmath> would make every start of dlock map another library.
std::string percent(double share) {
  return std::to_string(static_cast<std::int64_t>(share * 100 + 0.5));
}

std::chrono::nanoseconds read_clock(const std::function<std::optional<WallTime>()>& clock,
                                    Contact& facts) {
  const WallTime here = wall_now();
  const Deadline sent = BootClock::now();
  const auto server = clock();
  const Deadline received = BootClock::now();
  if (server) facts.clock.push_back({sent, received, here, *server});
  return received - sent;
}

}  // namespace

LockKey scratch_key() {
  constexpr std::size_t bytes_of_a_name = 8;
  return LockKey{"dlock-doctor-" + random_hex(bytes_of_a_name)};
}

TrialLock try_lock(Store& first, Store& second, const LockKey& key, const std::string& shown) {
  const Claim held = claim_on(key);
  const Claim waiting = claim_on(key);
  try {
    return {{}, hand_over(first, second, held, waiting)};
  } catch (const Error& error) {
    release_trial(second, waiting);
    release_trial(first, held);
    return {{bare_trouble(error.what(), shown, key.text), error.cause()}, {}};
  }
}

TrialLock try_lock(const std::function<StorePtr()>& open, const LockKey& key,
                   const std::string& shown) {
  const StorePtr first = open(), second = open();
  return try_lock(*first, *second, key, shown);
}

void examine(Contact& facts, const std::string& shown,
             const std::function<std::optional<WallTime>()>& clock,
             const std::function<void()>& rest) {
  bool reached = false;
  try {
    facts.connected_in = read_clock(clock, facts);
    facts.clock.clear();
    std::vector<std::chrono::nanoseconds> taken;
    for (int i = 0; i < clock_readings; ++i) taken.push_back(read_clock(clock, facts));
    std::sort(taken.begin(), taken.end());
    facts.round_trip = taken[clock_readings / 2];
    reached = true;
    rest();
    if (!facts.clock.empty()) {
      poll_until({}, later(facts.clock.front().received, pause_for_the_pace));
    }
    read_clock(clock, facts);
  } catch (const Error& error) {
    const ErrorKind kind = error.kind();
    if (kind == ErrorKind::usage || kind == ErrorKind::host_refused) throw;
    const std::string why = bare_trouble(error.what(), shown);
    if (reached) {
      facts.broke_off = why;
    } else {
      facts.unreachable = {why, error.cause()};
      facts.denied = kind == ErrorKind::denied;
    }
  }
}

std::string bare_trouble(std::string message, const std::string& name, const std::string& key) {
  for (const std::string& front : {name + ": ", key + ": "}) {
    if (message.starts_with(front)) message.erase(0, front.size());
  }
  // Redis 7 adds the place in the script: ` script: <hash>, on @user_script:8.`
  const auto from = message.find(" script: ");
  const auto to = message.find("on @user_script:", from);
  if (to != std::string::npos) message.erase(from, message.find_first_of(" )", to + 3) - from);
  return message;
}

bool are_on_this_host(const std::vector<Endpoint>& servers) {
  return std::all_of(servers.begin(), servers.end(),
                     [](const Endpoint& each) { return is_this_host(each.host); });
}

Finding check_reach(const Contact& facts, milliseconds ttl, const char* denied_advice,
                    const char* address_advice) {
  if (!facts.unreachable.empty()) {
    return bad(facts.unreachable.text,
               facts.denied ? denied_advice : advice_on(facts.unreachable.cause, address_advice));
  }
  const std::string text = "connected in " + span_text(facts.connected_in) + ", answers in " +
                           span_text(facts.round_trip);
  if (!facts.broke_off.empty()) {
    return bad(text + ", then broke off: " + facts.broke_off, "see the server's log");
  }
  return warn_if_slow(good(text), facts.round_trip, ttl);
}

Finding warn_if_slow(const Finding& finding, std::chrono::nanoseconds round_trip,
                     milliseconds ttl) {
  // A renewal must find room for some attempts within ttl/3.
  if (finding.level != Level::ok || round_trip <= ttl / 30) return finding;
  return warn(finding.text + ": slow for a ttl of " + human_duration(ttl),
              "a nearer server, or a longer -t");
}

Finding check_reach_of_any(const std::optional<std::string>& text,
                           const std::vector<const Fault*>& unreachable) {
  if (!text) {
    const Fault& first = *unreachable.front();
    return bad(first.text, advice_on_reach(first.cause));
  }
  if (unreachable.empty()) return good(*text);
  return warn(*text + "; " + unreachable.front()->text,
              "it is asked if the others fail: start it, or name others");
}

Finding check_versions(const std::string& engine, const std::set<std::string>& versions,
                       ShortVersion least) {
  const std::string text =
      engine + " " + joined(versions, ", ", [](const std::string& each) { return escaped(each); });
  for (const std::string& version : versions) {
    if (is_older(version, least)) {
      return bad(text + ": dlock needs " + std::to_string(least.first) + "." +
                     std::to_string(least.second) + " or later",
                 "upgrade it");
    }
  }
  return good(text);
}

Finding check_lock(const TrialLock& trial, const char* advice) {
  if (!trial.trouble.empty()) {
    return bad("cannot be held: " + trial.trouble.text, advice);
  }
  return good("acquired, handed over in " + span_text(trial.handed_over_in) +
              ", renewed, released");
}

Finding check_plain_text(bool here, const char* advice) {
  if (here) return good("none, on this host");
  return warn("none: anyone on the network path can change locks", advice);
}

Finding check_clock(const std::vector<ClockSample>& clock) {
  constexpr double tolerance = 0.01;
  constexpr std::chrono::seconds tolerable{1};
  if (clock.size() < 2) return not_told("TIME");
  const double pace = pace_of(clock);
  if (pace > 1 + tolerance) {
    return bad("runs " + percent(pace - 1) + " % fast: leases end before their holders know",
               "fix the clock of the server's host; never step it");
  }
  if (pace < 1 - tolerance) {
    return warn(pace <= 0
                    ? "stands still or is stepped back: locks of dead holders stay"
                    : "runs " + percent(1 - pace) + " % slow: locks of dead holders stay longer",
                "fix the clock of the server's host; never step it");
  }
  const auto nearest =
      std::min_element(clock.begin(), clock.end(), [](const ClockSample& a, const ClockSample& b) {
        return a.received - a.sent < b.received - b.sent;
      });
  const auto unsure = (nearest->received - nearest->sent) / 2;
  const auto ahead = nearest->server - (nearest->here + unsure);
  const auto off = ahead < ahead.zero() ? -ahead : ahead;
  if (off - unsure > tolerable) {
    return warn(span_text(off) + (ahead > ahead.zero() ? " ahead of" : " behind") +
                    " this host: times shown are off, and fences after a failover",
                "NTP on both hosts");
  }
  return good("within " + span_text(off + unsure) + " of this host's, at the same pace");
}

}  // namespace dlock
