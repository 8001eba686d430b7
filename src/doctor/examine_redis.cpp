#include "doctor/examine_redis.hpp"

#include <algorithm>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "doctor/checks.hpp"
#include "doctor/rights.hpp"
#include "redis/redis_member.hpp"
#include "redis/redis_store.hpp"

namespace dlock {

std::optional<std::string> ServerInfo::text(const std::string& name) const {
  const auto found = values.find(name);
  return found == values.end() ? std::nullopt : std::optional(found->second);
}

std::optional<long long> ServerInfo::number(const std::string& name) const {
  // No server has more of anything, and sums of such numbers do not overflow.
  constexpr long long most = 1'000'000'000'000'000;
  const auto found = values.find(name);
  return found == values.end() ? std::nullopt : parse_number(found->second, 0, most);
}

std::vector<Reply> ask_all(RedisConnection& connection, std::span<const Request> requests) {
  return connection.exchange(requests, short_call());
}

Reply ask(RedisConnection& connection, const Request& request) {
  return ask_all(connection, std::span(&request, 1)).front();
}

std::string refusal_of(const Reply& reply) {
  constexpr std::size_t enough = 60;
  if (!reply.is_error()) return "";
  const std::string_view text = reply.text;
  if (text.find("unknown command") != std::string_view::npos) return "unknown command";
  const auto code = text.substr(0, text.find(' '));
  return escaped(code == "ERR" ? text.substr(0, enough) : code.substr(0, enough));
}

std::string text_of(const Reply& reply) {
  return reply.kind == Reply::Kind::integer ? std::to_string(reply.integer) : reply.text;
}

ServerInfo told_in_lines(const Reply& reply) {
  ServerInfo told;
  told.refusal = refusal_of(reply);
  std::string_view rest = reply.text;
  while (told.refusal.empty() && !rest.empty()) {
    auto line = take_until(rest, '\n');
    if (line.ends_with('\r')) line.remove_suffix(1);
    const auto colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    told.values.emplace(line.substr(0, colon), line.substr(colon + 1));
  }
  return told;
}

ServerInfo told_in_pairs(const Reply& reply) {
  ServerInfo told;
  told.refusal = refusal_of(reply);
  for (std::size_t i = 0; i + 1 < reply.items.size(); i += 2) {
    told.values.emplace(reply.items[i].text, text_of(reply.items[i + 1]));
  }
  return told;
}

std::string role_of(const ServerFacts& facts) {
  for (const ServerInfo* told : {&facts.info, &facts.role, &facts.hello}) {
    if (auto role = told->text("role")) return *role == "replica" ? "slave" : *role;
  }
  return "";
}

std::string mode_of(const ServerFacts& facts) {
  for (const char* name : {"redis_mode", "server_mode"}) {
    if (auto mode = facts.info.text(name)) return *mode;
  }
  return facts.hello.text("mode").value_or("");
}

namespace {

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

/// Whether this server will hold locks: not a replica, a sentinel or a node of an unexpected
/// Cluster.
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

/// The rest of the node's quarantine. A node that lost its keys begins its two minutes with this
/// request.
std::optional<milliseconds> quarantined_for(const Endpoint& endpoint, const DoctorOptions& exam,
                                            const LockKey& key) {
  try {
    RedisMember member(endpoint, exam.prefix);
    member.renew(claim_named(key, new_token(Owner{"doctor"})), {}, short_call());
    return member.standing().quarantined_for;
  } catch (const Error&) {
    return std::nullopt;
  }
}

void try_on_server(RedisConnection& connection, const DoctorOptions& exam, const LockKey& key,
                   ServerFacts& facts) {
  const KeyNames scratch(exam.prefix, key);
  facts.tried = true;
  try_rights(connection, exam, scratch, facts);
  if (facts.no_scripts.empty()) {
    const bool may_move = exam.topology == Topology::sentinel || exam.topology == Topology::cluster;
    const RedisTerms terms{exam.prefix, exam.replicas, may_move};
    RedisStore first(std::make_unique<FixedEndpoint>(facts.endpoint), terms);
    RedisStore second(std::make_unique<FixedEndpoint>(facts.endpoint), terms);
    facts.trial = try_lock(first, second, key, facts.endpoint.name());
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
  facts.exam = exam;
  facts.endpoint = endpoint;
  RedisConnection connection(std::make_unique<FixedEndpoint>(endpoint));
  const auto clock = [&] {
    const auto server = time_in(ask(connection, {"TIME"}));
    if (facts.clock.empty()) {
      facts.seen_at = wall_now();
      facts.tls = connection.tls_facts();
    }
    return server;
  };
  examine(facts, endpoint.name(), clock, [&] {
    listen_to(connection, facts);
    if (is_for_trial(facts, exam)) try_on_server(connection, exam, scratch, facts);
  });
  return facts;
}

}  // namespace dlock
