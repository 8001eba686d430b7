#include "doctor/rights.hpp"

#include "base/text.hpp"
#include "doctor/checks.hpp"
#include "sql/sql_backend.hpp"

namespace dlock {
namespace {

std::string user_of(const Endpoint& server, const char* otherwise) {
  return server.user ? escaped(*server.user) : otherwise;
}

constexpr const char* grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON ";

std::string postgres_rights(const std::string& url) {
  std::string schema = schema_in(url);
  for (auto at = schema.find('"'); at != std::string::npos; at = schema.find('"', at + 2)) {
    schema.insert(at, 1, '"');
  }
  const std::string in = schema.empty() ? "public" : '"' + schema + '"';
  const std::string usage = schema.empty() ? "" : "GRANT USAGE ON SCHEMA " + in + " TO \"USER\";\n";
  return sentence("{};\n{}{}{}.dlock TO \"USER\";\n",
                  create_statement(postgres_dialect, in + ".dlock"), usage, grant, in);
}

std::string mysql_rights() {
  return sentence("{};\n{}dlock TO 'USER'@'%';\n", create_statement(mysql_dialect), grant);
}

/// Makes the text of rights_text() for each engine.
struct Rights {
  DoctorOptions options;

  std::string operator()(const LocalTarget&) const {
    throw_usage("--acl: locks on this host need none");
  }
  std::string operator()(const MemcachedTarget&) const {
    throw_usage("--acl: memcached has no rights");
  }
  std::string operator()(const Endpoint& server) const { return line(Topology::single, server); }
  std::string operator()(const SentinelTarget& target) const {
    return line(Topology::sentinel, target.master) + sentinel_acl_line(target.sentinels.front()) +
           "\n";
  }
  std::string operator()(const ClusterTarget& target) const {
    return line(Topology::cluster, target.seeds.front());
  }
  std::string operator()(const QuorumTarget& target) const {
    return line(Topology::quorum, target.servers.front());
  }
  std::string operator()(const SqlTarget& target) const {
    return target.mysql ? mysql_rights() : postgres_rights(target.url);
  }
  std::string operator()(const EtcdTarget& target) const {
    const std::string user = user_of(target.servers.front(), "USER");
    return sentence(
        "etcdctl role add dlock\n"
        "etcdctl role grant-permission dlock --prefix=true readwrite {}\n"
        "etcdctl user add {}\n"
        "etcdctl user grant-role {} dlock\n",
        escaped(options.prefix), user, user);
  }
  std::string operator()(const ZooKeeperTarget& target) const {
    const std::string user = user_of(target.servers.front(), "USER");
    const std::string path = target.chroot.empty() ? "/" : escaped(target.chroot);
    return sentence(
        "# in zkCli.sh, as who may change the rights on {}:\n"
        "addauth digest {}:PASSWORD\n"
        "setAcl {} auth:{}:PASSWORD:cdrwa\n",
        path, user, path, user);
  }
  std::string operator()(const KubeTarget& target) const {
    const std::string in = target.name_space.empty() ? "NAMESPACE" : target.name_space;
    return sentence(
        "apiVersion: rbac.authorization.k8s.io/v1\n"
        "kind: Role\n"
        "metadata: {name: dlock, namespace: {}}\n"
        "rules:\n"
        "- apiGroups: [coordination.k8s.io]\n"
        "  resources: [leases]\n"
        "  verbs: [{}]\n"
        "---\n"
        "apiVersion: rbac.authorization.k8s.io/v1\n"
        "kind: RoleBinding\n"
        "metadata: {name: dlock, namespace: {}}\n"
        "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: dlock}\n"
        "subjects:\n"
        "- {kind: ServiceAccount, name: ACCOUNT, namespace: {}}\n",
        in, joined(verbs_on_leases, ", ", [](const char* each) { return std::string(each); }), in,
        in);
  }
  /// A policy of AWS. Without s3:ListBucket the store answers 403 for an object that is missing.
  std::string operator()(const S3Target& target) const {
    const std::string bucket = "arn:aws:s3:::" + target.bucket;
    return sentence(
        "{\"Version\": \"2012-10-17\", \"Statement\": [\n"
        "  {\"Effect\": \"Allow\", \"Action\": [\"s3:GetObject\", \"s3:PutObject\", "
        "\"s3:DeleteObject\"],\n"
        "   \"Resource\": \"{}/{}/*\"},\n"
        "  {\"Effect\": \"Allow\", \"Action\": [\"s3:ListBucket\", "
        "\"s3:GetBucketVersioning\"], \"Resource\": \"{}\"}]}\n",
        bucket, target.folder, bucket);
  }

 private:
  std::string line(Topology topology, const Endpoint& server) const {
    DoctorOptions in = options;
    in.topology = topology;
    return acl_line(in, server) + "\n";
  }
};

}  // namespace

std::string rights_text(const Target& target, DoctorOptions options) {
  return std::visit(Rights{std::move(options)}, target);
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
