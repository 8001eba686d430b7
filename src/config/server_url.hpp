#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/endpoint.hpp"
#include "sql/database.hpp"

namespace dlock {

/// `local:` or `local:/dir`.
struct LocalTarget {
  std::optional<std::string> dir;  ///< nothing: the user's own default directory
  bool operator==(const LocalTarget&) const = default;
};

/// A master that sentinels know.
struct SentinelTarget {
  std::vector<Endpoint> sentinels;  ///< with their own credentials
  std::string master_name;
  Endpoint master;  ///< how to log in to it; the sentinels say where it is
  bool operator==(const SentinelTarget&) const = default;
};

struct ClusterTarget {
  std::vector<Endpoint> seeds;  ///< some of its nodes, which name the others
  bool operator==(const ClusterTarget&) const = default;
};

/// Three or more independent servers that decide by majority.
struct QuorumTarget {
  std::vector<Endpoint> servers;
  bool operator==(const QuorumTarget&) const = default;
};

/// A database. libpq gets the URL of PostgreSQL unchanged; the library of MySQL and MariaDB takes
/// none.
struct SqlTarget {
  std::string url;
  std::string shown;                    ///< for people: without login and most parameters
  std::optional<Password> password{};   ///< if there is none, the library may find one
  std::optional<MysqlAddress> mysql{};  ///< the parts of a `mysql://` or `mariadb://` URL
  bool operator==(const SqlTarget&) const = default;
};

/// An etcd cluster, by some or all of its members.
struct EtcdTarget {
  std::vector<Endpoint> servers;
  bool operator==(const EtcdTarget&) const = default;
  /// `etcd://e1:2379,e2:2379`, for people.
  std::string name() const;
};

/// A ZooKeeper ensemble, by some or all of its servers.
struct ZooKeeperTarget {
  std::vector<Endpoint> servers;
  std::string chroot;  ///< empty, or the path below which dlock stores everything
  bool operator==(const ZooKeeperTarget&) const = default;
  /// `zk://z1:2181,z2:2181/chroot`, for people.
  std::string name() const;
};

/// A namespace of the Kubernetes cluster in which dlock runs, or that kubectl would ask.
struct KubeTarget {
  std::string name_space{};  ///< empty: that of the pod, or of the context
  std::string context{};     ///< of kubectl's configuration; empty: the current one
  bool operator==(const KubeTarget&) const = default;
  /// `k8s://NAMESPACE?context=NAME`, for people.
  std::string name() const;
};

/// One memcached.
struct MemcachedTarget {
  Endpoint at;
  bool operator==(const MemcachedTarget&) const = default;
  /// `memcached://m1:11211`, for people.
  std::string name() const { return "memcached://" + at.address(); }
};

/// A bucket of S3, or of a store that speaks its protocol.
struct S3Target {
  std::vector<Endpoint> servers;  ///< the one that has the bucket
  std::string region;
  std::string bucket;
  std::string folder;           ///< below which dlock stores everything
  std::string endpoint;         ///< as it was given; empty: Amazon's
  bool bucket_in_path = false;  ///< and not in the name of the host
  bool operator==(const S3Target&) const = default;
  /// `s3://BUCKET/FOLDER`, and the endpoint, for people.
  std::string name() const;
};

/// The engine that a URL names; an Endpoint is a single Redis or Valkey.
using Target =
    std::variant<LocalTarget, Endpoint, SentinelTarget, ClusterTarget, QuorumTarget, SqlTarget,
                 EtcdTarget, ZooKeeperTarget, KubeTarget, S3Target, MemcachedTarget>;

/// How a URL may begin, separated by blanks, for completions and messages.
inline constexpr const char* beginnings_of_urls =
    "local: redis:// rediss:// unix:// redis+sentinel:// rediss+sentinel:// redis+cluster:// "
    "rediss+cluster:// postgres:// postgresql:// mysql:// mariadb:// etcd:// etcds:// zk:// k8s:// "
    "s3:// memcached://";

/// Whether the target is Redis or Valkey in any deployment.
inline bool is_redis(const Target& target) {
  return std::holds_alternative<Endpoint>(target) ||
         std::holds_alternative<SentinelTarget>(target) ||
         std::holds_alternative<ClusterTarget>(target) ||
         std::holds_alternative<QuorumTarget>(target);
}

/// Parses a URL in one of the forms of the README; user, password and paths are percent-decoded,
/// and `rediss` sets default TlsSettings. Throws Error{usage} without the source of the URL; the
/// message shows nothing before an `@`.
Target parse_server_url(std::string_view text);

}  // namespace dlock
