#include "doctor/checks.hpp"

#include <array>
#include <cstdio>

#include "base/duration.hpp"
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

struct CauseAdvice {
  Cause cause;
  const char* advice;
};
constexpr CauseAdvice advices[] = {
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

void require(bool as_expected, const char* otherwise_told) {
  if (!as_expected) throw_unavailable(otherwise_told);
}

void release_trial(Store& store, const Claim& claim) {
  try {
    store.release(claim, {ReleaseMode::ignore_floor}, call_options());
  } catch (const Error&) {
    // doctor reports the first failure; this lease expires by itself.
  }
}

std::chrono::nanoseconds hand_over(Store& first, Store& second, const Claim& held,
                                   const Claim& waiting) {
  require(std::holds_alternative<Grant>(first.acquire(held, {}, call_options())),
          "a free key was refused");
  const Answer answer = second.acquire(waiting, {true, std::nullopt}, call_options());
  require(std::holds_alternative<Refusal>(answer), "a held key was granted to another");
  const Deadline begun = BootClock::now();
  require(first.release(held, {}, call_options()).outcome == Released::yes,
          "a lock was lost at once");
  require(second.sleep(waiting, call_options().deadline, -1).why == Wake::Reason::granted,
          "a waiter was not told that its lock was free");
  const auto taken = BootClock::now() - begun;
  require(second.renew(waiting, {}, call_options()).grant.has_value(),
          "a lock that was handed over could not be renewed");
  require(second.release(waiting, {}, call_options()).outcome == Released::yes,
          "a lock could not be released");
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

std::chrono::nanoseconds read_clock(const std::function<std::optional<WallTime>()>& clock,
                                    Contact& facts) {
  const WallTime here = wall_now();
  const Deadline sent = BootClock::now();
  const auto server = clock();
  const Deadline received = BootClock::now();
  if (server) facts.clock.push_back({sent, received, here, *server});
  return received - sent;
}

std::string rounded(double number, const char* unit) {
  std::array<char, 64> text{};
  const int decimals = number < 1 ? 2 : number < 10 ? 1 : 0;
  std::snprintf(text.data(), text.size(), "%.*f%s", decimals, number, unit);
  return text.data();
}

}  // namespace

std::optional<std::string> ServerInfo::text(const std::string& name) const {
  const auto found = values.find(name);
  return found == values.end() ? std::nullopt : std::optional(found->second);
}

std::optional<long long> ServerInfo::number(const std::string& name) const {
  // No server has more of anything, and sums of such numbers do not overflow.
  constexpr long long most = 1'000'000'000'000'000;
  return parse_number(text(name).value_or(""), 0, most);
}

std::string ServerInfo::shown(const std::string& name) const {
  return escaped(text(name).value_or(""));
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
    release_trial(*second, waiting);
    release_trial(*first, held);
    return {{bare_trouble(error.what(), shown, key.text), error.cause()}, {}};
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
  return ms < 1000 ? rounded(ms, " ms") : rounded(ms / 1000, " s");
}

std::string size_text(long long bytes) {
  constexpr std::array units{"B", "K", "M", "G", "T"};
  double number = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (number >= 1024 && unit + 1 < units.size()) {
    number /= 1024;
    ++unit;
  }
  return unit == 0 ? std::to_string(bytes) + "B" : rounded(number, units[unit]);
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
  const auto* const found =
      std::find_if(std::begin(advices), std::end(advices),
                   [&](const CauseAdvice& each) { return each.cause == cause; });
  return found == std::end(advices) ? otherwise : found->advice;
}

std::string advice_on_reach(Cause cause) {
  return advice_on(cause, is_reply(cause)
                              ? "see the server's log"
                              : "is it running, and do address, port and firewall fit?");
}

Finding check_reach(const Contact& facts, const std::string& advice) {
  if (!facts.unreachable.empty()) return bad(facts.unreachable.text, advice);
  const std::string text = sentence("connected in {}, answers in {}", span_text(facts.connected_in),
                                    span_text(facts.round_trip));
  if (facts.broke_off.empty()) return warn_if_slow(good(text), facts.round_trip, facts.options.ttl);
  return bad(text + ", then broke off: " + facts.broke_off, "see the server's log");
}

Finding warn_if_slow(const Finding& finding, std::chrono::nanoseconds round_trip,
                     milliseconds ttl) {
  // A renewal must find room for some attempts within ttl/3.
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

Finding check_lock(const std::optional<TrialLock>& trial, const std::string& advice) {
  if (!trial) return {};
  if (!trial->trouble.empty()) return bad("cannot be held: " + trial->trouble.text, advice);
  return good(
      sentence("acquired, handed over in {}, renewed, released", span_text(trial->handed_over_in)));
}

Finding check_plain_text(bool here, const char* advice) {
  if (here) return good("none, on this host");
  return warn("none: anyone on the network path can change locks", advice);
}

const ClockSample& nearest_reading(const std::vector<ClockSample>& clock) {
  return *std::min_element(clock.begin(), clock.end(),
                           [](const ClockSample& a, const ClockSample& b) {
                             return a.received - a.sent < b.received - b.sent;
                           });
}

Finding check_clock(const std::vector<ClockSample>& clock) {
  constexpr double tolerance = 0.01;
  constexpr std::chrono::seconds tolerable{1};
  constexpr const char* advice = "fix the clock of the server's host; never step it";
  if (clock.size() < 2) return not_told("TIME");
  const double pace = pace_of(clock);
  // <cmath> would make every start of dlock map another library.
  const auto percent = static_cast<long long>((pace > 1 ? pace - 1 : 1 - pace) * 100 + 0.5);
  const ClockSample& nearest = nearest_reading(clock);
  const auto unsure = (nearest.received - nearest.sent) / 2;
  const auto ahead = nearest.server - (nearest.here + unsure);
  const auto off = ahead < ahead.zero() ? -ahead : ahead;
  if (pace > 1 + tolerance) {
    return bad(sentence("runs {} % fast: leases end before their holders know", percent), advice);
  }
  if (pace <= 0) return warn("stands still or is stepped back: locks of dead holders stay", advice);
  if (pace < 1 - tolerance) {
    return warn(sentence("runs {} % slow: locks of dead holders stay longer", percent), advice);
  }
  if (off - unsure <= tolerable) {
    return good("within " + span_text(off + unsure) + " of this host's, at the same pace");
  }
  return warn(sentence("{} {} this host: times shown are off, and fences after a failover",
                       span_text(off), ahead > ahead.zero() ? "ahead of" : "behind"),
              "NTP on both hosts");
}

}  // namespace dlock
