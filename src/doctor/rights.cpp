#include "doctor/rights.hpp"

#include <cctype>

#include "base/text.hpp"

namespace dlock {
namespace {

std::vector<Right> script_rights(const KeyNames& keys) {
  const std::string no_such_script(40, '0');
  return {{"eval", {"EVAL", "return 1", "0"}},
          {"evalsha", {"EVALSHA", no_such_script, "0"}},
          {"exists", {"EXISTS", keys.holds, keys.queue}},
          {"time", {"TIME"}},
          {"set", {"SET", keys.fence, "1", "EX", "10", "GET"}},
          {"get", {"GET", keys.fence}},
          {"hset", {"HSET", keys.holds, "field", "value"}},
          {"hget", {"HGET", keys.holds, "field"}},
          {"hgetall", {"HGETALL", keys.holds}},
          {"pttl", {"PTTL", keys.holds}},
          {"zadd", {"ZADD", keys.queue, "1", "member"}},
          {"zrange", {"ZRANGE", keys.queue, "0", "-1", "WITHSCORES"}},
          {"zrevrange", {"ZREVRANGE", keys.queue, "0", "0", "WITHSCORES"}},
          {"zscore", {"ZSCORE", keys.queue, "member"}},
          {"zrank", {"ZRANK", keys.queue, "member"}},
          {"zcard", {"ZCARD", keys.queue}},
          {"hdel", {"HDEL", keys.holds, "field"}},
          {"hlen", {"HLEN", keys.holds}},
          {"zrem", {"ZREM", keys.queue, "member"}},
          {"pexpire", {"PEXPIRE", keys.fence, "1"}},
          {"publish", {"PUBLISH", keys.holds + ":channel", "nobody listens"}}};
}

std::string words_of(const std::vector<Right>& rights) {
  std::string text;
  for (const Right& each : rights) text += " +" + each.word;
  return text;
}

std::string user_of(const Endpoint& server) {
  return server.user ? escaped(*server.user) : "dlock";
}

}  // namespace

std::vector<Right> rights_needed(const DoctorOptions& exam, const Endpoint& server,
                                 const KeyNames& scratch) {
  std::vector<Right> rights = script_rights(scratch);
  rights.push_back({"scan", {"SCAN", "0", "COUNT", "1"}});
  if (server.database != 0)
    rights.push_back({"select", {"SELECT", std::to_string(server.database)}});
  if (exam.replicas > 0) rights.push_back({"wait", {"WAIT", "0", "1"}});
  const bool may_be_a_replica =
      exam.topology == Topology::sentinel || exam.topology == Topology::quorum;
  if (may_be_a_replica) rights.push_back({"role", {"ROLE"}});
  if (exam.topology == Topology::quorum) rights.push_back({"info", {"INFO", "server"}});
  if (exam.topology == Topology::cluster) {
    rights.push_back({"cluster|slots", {"CLUSTER", "SLOTS"}});
    rights.push_back({"asking", {"ASKING"}});
  }
  const std::string channel = scratch.holds + ":channel";
  rights.push_back({"exec", {"EXEC"}});
  rights.push_back({"multi", {"MULTI"}, true});
  rights.push_back({"unsubscribe", {"UNSUBSCRIBE", channel}});
  rights.push_back({"subscribe", {"SUBSCRIBE", channel}, true});
  return rights;
}

std::string lacking(const Right& right, const std::string& refusal, const std::string& pattern) {
  // Redis 6 to 7.0: "access one of the keys used as arguments"; since 7.2: "access a key". The name
  // of the user stands before it and holds no blank.
  const std::string_view access = " permissions to access ";
  const auto at = refusal.find(access);
  if (at == std::string::npos) return "+" + right.word;
  const bool of_channels = refusal.find(" channel", at) != std::string::npos;
  return (of_channels ? "&" : "~") + pattern;
}

std::string acl_pattern(const std::string& prefix) {
  std::string pattern;
  for (const char c : prefix) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x7F || std::isgraph(byte) == 0 || c == '"' || c == '\'') {
      pattern += '?';
      continue;
    }
    if (std::string_view("*?[]\\^").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern + "*";
}

std::string acl_line(const DoctorOptions& exam, const Endpoint& server) {
  const std::string pattern = acl_pattern(exam.prefix);
  const auto rights = rights_needed(exam, server, KeyNames(exam.prefix, LockKey{"x"}));
  return "ACL SETUSER " + user_of(server) + " reset on >PASSWORD -@all ~" + pattern +
         " resetchannels &" + pattern + words_of(rights);
}

std::string sentinel_acl_line(const Endpoint& sentinel) {
  return "ACL SETUSER " + user_of(sentinel) +
         " reset on >PASSWORD -@all resetchannels +sentinel|get-master-addr-by-name"
         " +sentinel|sentinels";
}

}  // namespace dlock
