#include "doctor/redis_rights.hpp"

#include <cctype>

#include "base/text.hpp"
#include "doctor/checks.hpp"

namespace dlock {
namespace {

std::string acl_text(DoctorOptions options, Topology topology, const Endpoint& server) {
  options.topology = topology;
  return acl_line(options, server) + "\n";
}

}  // namespace

std::string rights_text(const Endpoint& server, const DoctorOptions& options) {
  return acl_text(options, Topology::single, server);
}

std::string rights_text(const SentinelTarget& target, const DoctorOptions& options) {
  return acl_text(options, Topology::sentinel, target.master) +
         sentinel_acl_line(target.sentinels.front()) + "\n";
}

std::string rights_text(const ClusterTarget& target, const DoctorOptions& options) {
  return acl_text(options, Topology::cluster, target.seeds.front());
}

std::string rights_text(const QuorumTarget& target, const DoctorOptions& options) {
  return acl_text(options, Topology::quorum, target.servers.front());
}

std::vector<Right> rights_needed(const DoctorOptions& options, const Endpoint& server,
                                 const KeyNames& keys) {
  const std::string no_such_script(40, '0');
  const std::string channel = keys.holds + ":channel";
  std::vector<Right> rights{{"eval", {"EVAL", "return 1", "0"}},
                            {"evalsha", {"EVALSHA", no_such_script, "0"}},
                            {"exists", {"EXISTS", keys.holds, keys.queue}},
                            {"time", {"TIME"}},
                            {"set", {"SET", keys.fence, "1", "EX", "10", "GET"}},
                            {"get", {"GET", keys.fence}},
                            {"expire", {"EXPIRE", keys.fence, "10"}},
                            {"append", {"APPEND", keys.fence, " "}},
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
                            {"publish", {"PUBLISH", channel, "nobody listens"}},
                            {"scan", {"SCAN", "0", "COUNT", "1"}}};
  if (server.database != 0)
    rights.push_back({"select", {"SELECT", std::to_string(server.database)}});
  if (options.replicas > 0) rights.push_back({"wait", {"WAIT", "0", "1"}});
  const bool may_be_a_replica =
      options.topology == Topology::sentinel || options.topology == Topology::quorum;
  if (may_be_a_replica) rights.push_back({"role", {"ROLE"}});
  if (options.topology == Topology::quorum) rights.push_back({"info", {"INFO", "server"}});
  if (options.topology == Topology::cluster) {
    rights.push_back({"cluster|slots", {"CLUSTER", "SLOTS"}});
    rights.push_back({"asking", {"ASKING"}});
  }
  rights.push_back({"exec", {"EXEC"}});
  rights.push_back({"multi", {"MULTI"}, true});
  rights.push_back({"unsubscribe", {"UNSUBSCRIBE", channel}});
  rights.push_back({"subscribe", {"SUBSCRIBE", channel}, true});
  return rights;
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

std::string acl_line(const DoctorOptions& options, const Endpoint& server) {
  const std::string pattern = acl_pattern(options.prefix);
  const auto rights = rights_needed(options, server, KeyNames(options.prefix, LockKey{"x"}));
  return sentence("ACL SETUSER {} reset on >PASSWORD -@all ~{} resetchannels &{}{}",
                  user_of(server, "dlock"), pattern, pattern,
                  joined(rights, "", [](const Right& each) { return " +" + each.word; }));
}

std::string sentinel_acl_line(const Endpoint& sentinel) {
  return sentence(
      "ACL SETUSER {} reset on >PASSWORD -@all resetchannels +sentinel|get-master-addr-by-name",
      user_of(sentinel, "dlock"));
}

}  // namespace dlock
