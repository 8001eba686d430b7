#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "doctor/ask.hpp"
#include "doctor/examine.hpp"
#include "doctor/rights.hpp"
#include "doctor/trial_lock.hpp"
#include "redis/member_server.hpp"
#include "redis/redis_store.hpp"

namespace dlock {
namespace {

constexpr int round_trips = 5;
/// One percent of this is more than a round trip in a data centre.
constexpr milliseconds between_samples{300};

const char* const settings_of_interest[] = {"appendonly",
                                            "appendfsync",
                                            "no-appendfsync-on-rewrite",
                                            "save",
                                            "maxmemory",
                                            "maxmemory-policy",
                                            "min-replicas-to-write",
                                            "timeout",
                                            "min-replicas-max-lag",
                                            "active-replica",
                                            "multi-master",
                                            "cluster-node-timeout"};

std::optional<WallTime> time_in(const Reply& reply) {
  if (!reply.is_array(2)) return std::nullopt;
  try {
    constexpr std::int64_t largest_second = 9'000'000'000;  // of the year 2255
    constexpr std::int64_t us_a_second = 1'000'000;
    return WallTime(std::chrono::seconds(server_number(reply.items[0].text, largest_second)) +
                    microseconds(server_number(reply.items[1].text, us_a_second)));
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::chrono::nanoseconds read_clock(RedisConnection& connection, ServerFacts& facts) {
  const WallTime here = wall_now();
  const Deadline sent = BootClock::now();
  const Reply reply = ask(connection, {"TIME"});
  const Deadline received = BootClock::now();
  if (const auto server = time_in(reply)) facts.clock.push_back({sent, received, here, *server});
  return received - sent;
}

void reach(RedisConnection& connection, ServerFacts& facts) {
  facts.seen_at = wall_now();
  facts.connected_in = read_clock(connection, facts);
  facts.tls = connection.tls_facts();
  facts.clock.clear();
  std::vector<std::chrono::nanoseconds> taken;
  for (int i = 0; i < round_trips; ++i) taken.push_back(read_clock(connection, facts));
  std::sort(taken.begin(), taken.end());
  facts.round_trip = taken[round_trips / 2];
}

void listen_to(RedisConnection& connection, ServerFacts& facts) {
  std::vector<Request> requests{{"HELLO", "2"}, {"INFO"}, {"ACL", "WHOAMI"}, {"ROLE"}};
  for (const char* name : settings_of_interest) requests.push_back({"CONFIG", "GET", name});
  const auto replies = ask_all(connection, requests);
  facts.hello = told_in_pairs(replies[0]);
  facts.info = told_in_lines(replies[1]);
  if (!replies[2].is_error()) facts.user = replies[2].text;
  const Reply& role = replies[3];
  facts.role.refusal = refusal_of(role);
  const char* const parts[] = {"role", "host", "port", "state"};
  for (std::size_t i = 0; i < std::size(parts) && role.is_array(i + 1); ++i) {
    facts.role.values[parts[i]] = text_of(role.items[i]);
  }
  for (std::size_t i = 4; i < replies.size(); ++i) {
    ServerInfo one = told_in_pairs(replies[i]);
    if (!one.refusal.empty()) facts.config.refusal = one.refusal;
    facts.config.values.merge(one.values);
  }
}

/// Locks are tried on what will hold them, not on its replica, a sentinel or one node of many.
bool is_for_trial(const ServerFacts& facts, const DoctorOptions& exam) {
  const bool master = role_of(facts) == "master" || role_of(facts) == "active-replica";
  const bool cluster = mode_of(facts) == "cluster";
  return (master || role_of(facts).empty()) && cluster == (exam.topology == Topology::cluster);
}

void note_refusal(const Right& right, const Reply& reply, const std::string& pattern,
                  ServerFacts& facts) {
  const std::string& text = reply.text;
  const auto says = [&](const char* what) { return text.find(what) != std::string::npos; };
  const bool of_scripts = right.word == "eval" || right.word == "evalsha";
  if (says("NOPERM")) {  // to EXEC behind other words
    const std::string word = lacking(right, text, pattern);
    auto& missing = facts.missing;
    if (std::find(missing.begin(), missing.end(), word) == missing.end()) missing.push_back(word);
  } else if (of_scripts && (says("unknown command") || says("Lua"))) {
    facts.no_scripts = refusal_of(reply);
  } else if (says("unknown command")) {
    facts.absent.push_back(right.word);
  }
}

void try_rights(RedisConnection& connection, const DoctorOptions& exam, const KeyNames& scratch,
                ServerFacts& facts) {
  const std::string pattern = acl_pattern(exam.prefix);
  std::vector<Right> together;
  const auto send = [&] {
    std::vector<Request> requests;
    for (const Right& right : together) requests.push_back(right.trial);
    const auto replies = ask_all(connection, requests);
    for (std::size_t i = 0; i < replies.size(); ++i) {
      if (replies[i].is_error()) note_refusal(together[i], replies[i], pattern, facts);
    }
    if (together.back().spends_link) connection.close();
    together.clear();
  };
  for (Right& right : rights_needed(exam, facts.endpoint, scratch)) {
    together.push_back(std::move(right));
    if (together.back().spends_link) send();
  }
}

void sweep(RedisConnection& connection, const KeyNames& scratch) {
  const Request requests[] = {{"PEXPIRE", scratch.holds, "0"},
                              {"PEXPIRE", scratch.queue, "0"},
                              {"PEXPIRE", scratch.waiters, "0"},
                              {"PEXPIRE", scratch.fence, "0"}};
  ask_all(connection, requests);
}

/// What is left of the quarantine. A server that has lost keys counts its two minutes from here.
std::optional<milliseconds> quarantined_for(const Endpoint& endpoint, const DoctorOptions& exam,
                                            const LockKey& key) {
  try {
    const auto member = redis_member(endpoint, exam.prefix);
    member->renew(claim_named(key, new_token(Owner{"doctor"})), {}, short_call());
    return member->standing().quarantined_for;
  } catch (const Error&) {
    return std::nullopt;
  }
}

void try_lock(RedisConnection& connection, const DoctorOptions& exam, const LockKey& key,
              ServerFacts& facts) {
  const KeyNames scratch(exam.prefix, key);
  facts.tried = true;
  try_rights(connection, exam, scratch, facts);
  if (facts.no_scripts.empty()) {
    const bool may_move = exam.topology == Topology::sentinel || exam.topology == Topology::cluster;
    const RedisTerms terms{exam.prefix, exam.replicas, may_move};
    RedisStore first(std::make_unique<FixedEndpoint>(facts.endpoint), terms);
    RedisStore second(std::make_unique<FixedEndpoint>(facts.endpoint), terms);
    facts.trial = hold_trial_lock(first, second, key);
    std::string& trouble = facts.trial.trouble.text;
    trouble = bare_trouble(trouble, facts.endpoint.name(), key.text);
    if (exam.topology == Topology::quorum) {
      facts.quarantined_for = quarantined_for(facts.endpoint, exam, key);
    }
  }
  sweep(connection, scratch);
}

}  // namespace

ServerFacts examine_server(const Endpoint& endpoint, const DoctorOptions& exam,
                           const LockKey& scratch) {
  ServerFacts facts;
  facts.endpoint = endpoint;
  RedisConnection connection(std::make_unique<FixedEndpoint>(endpoint));
  bool reached = false;
  try {
    reach(connection, facts);
    reached = true;
    listen_to(connection, facts);
    if (is_for_trial(facts, exam)) try_lock(connection, exam, scratch, facts);
    if (!facts.clock.empty()) {
      poll_until({}, later(facts.clock.front().received, between_samples));
    }
    read_clock(connection, facts);
  } catch (const Error& error) {
    const std::string why = bare_trouble(error.what(), endpoint.name());
    if (reached) {
      facts.broke_off = why;
    } else {
      facts.unreachable = {why, error.cause()};
    }
  }
  return facts;
}

}  // namespace dlock
