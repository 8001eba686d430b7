#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "etcd/etcd_client.hpp"
#include "etcd/etcd_json.hpp"
#include "support/ensemble.hpp"
#include "support/tls_files.hpp"

namespace dlock::test {

/// The server's certificate, the CA that it trusts, and the certificate of its clients.
struct EtcdTls {
  Certificate server;
  std::string ca;
  Certificate client;
};

struct EtcdOptions {
  int members = 1;
  std::vector<std::string> flags{};  ///< further flags of etcd
  std::optional<EtcdTls> tls{};
};

/// An etcd of one or more members on ports of 127.0.0.1, for one test. It has a leader when
/// constructed; the destructor removes it.
class EtcdServers final : public Ensemble {
 public:
  /// Whether this machine has etcd installed.
  static constexpr const char* package = "etcd-server";  ///< in Debian
  static bool is_installed();

  explicit EtcdServers(EtcdOptions options = {});

  /// The URL for dlock; `login` is `USER:PASSWORD@`.
  std::string url(const std::string& login = {}) const;
  Endpoint endpoint(std::size_t member) const override;

  /// Starts one that was killed, with what it has stored and with further flags.
  void start(std::size_t member, const std::vector<std::string>& flags = {});

  /// Sends a request to any member; Error if it fails.
  nlohmann::json ask(const std::string& path, const nlohmann::json& fields);
  /// Removes all keys, and all leases that have keys.
  void clear();
  std::vector<EtcdEntry> entries();
  std::vector<std::string> keys();

 private:
  bool leads(std::size_t member) override;
  bool serves(std::size_t member) override;

  EtcdOptions options_;
  std::optional<EtcdClient> client_;
};

}  // namespace dlock::test
