#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/endpoint.hpp"
#include "base/mysql_address.hpp"

namespace dlock {

/// `local:` or `local:/dir`.
struct LocalTarget {
  std::optional<std::string> dir;  ///< nothing: the user's own default directory
  bool operator==(const LocalTarget&) const = default;
};

/// The master that sentinels name.
struct SentinelTarget {
  std::vector<Endpoint> sentinels;  ///< with their own credentials
  std::string master_name;
  Endpoint master;  ///< how to log in to it; where it is the sentinels say
  bool operator==(const SentinelTarget&) const = default;
};

/// A Redis Cluster.
struct ClusterTarget {
  std::vector<Endpoint> seeds;  ///< some of its nodes, which name the others
  bool operator==(const ClusterTarget&) const = default;
};

/// Independent servers of which a majority decides: three or more.
struct QuorumTarget {
  std::vector<Endpoint> servers;
  bool operator==(const QuorumTarget&) const = default;
};

/// A database. A URL of PostgreSQL goes to its client library as it is; the library of MySQL and
/// MariaDB reads none.
struct SqlTarget {
  std::string url;
  std::string shown;                    ///< for people: without login and most parameters
  std::optional<Password> password{};   ///< goes before the one that the URL or the library has
  bool has_password = false;            ///< the URL brings one
  std::optional<MysqlAddress> mysql{};  ///< of a `mysql://` or `mariadb://` URL: its parts
  bool operator==(const SqlTarget&) const = default;
};

/// An etcd: some of its members, or all.
struct EtcdTarget {
  std::vector<Endpoint> servers;
  bool operator==(const EtcdTarget&) const = default;
  /// `etcd://e1:2379,e2:2379`, for people.
  std::string name() const;
};

/// A ZooKeeper: some of its servers, or all.
struct ZooKeeperTarget {
  std::vector<Endpoint> servers;
  std::string chroot;  ///< empty, or a path below which dlock keeps all
  bool operator==(const ZooKeeperTarget&) const = default;
  /// `zk://z1:2181,z2:2181/chroot`, for people.
  std::string name() const;
};

/// Where locks live; an Endpoint is one Redis or Valkey.
using Target = std::variant<LocalTarget, Endpoint, SentinelTarget, ClusterTarget, QuorumTarget,
                            SqlTarget, EtcdTarget, ZooKeeperTarget>;

/// Whether it is Redis or Valkey, however deployed.
bool is_redis(const Target& target);

/// Reads a URL, whose forms are those of the README; user, password and paths are percent-decoded,
/// and `rediss` leaves default TlsSettings. Throws Error{usage} without saying where the URL stood;
/// the message shows nothing before an `@`.
Target parse_server_url(std::string_view text);

}  // namespace dlock
