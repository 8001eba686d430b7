#include "support/etcd_servers.hpp"

#include <signal.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "etcd/etcd_json.hpp"
#include "support/eventually.hpp"

namespace dlock::test {
namespace {

using nlohmann::json;

constexpr const char* etcd_program = "/usr/bin/etcd";

CallOptions long_enough() { return {later(BootClock::now(), std::chrono::seconds(10)), -1}; }

std::string http_at(const UnusedPort& port) {
  return "http://127.0.0.1:" + std::to_string(port.number());
}

}  // namespace

bool EtcdServers::is_installed() { return access(etcd_program, X_OK) == 0; }

EtcdServers::EtcdServers(EtcdOptions options)
    : Ensemble(options.members), options_(std::move(options)) {
  client_.emplace(endpoints(), "etcd");
  for (std::size_t i = 0; i < size(); ++i) start(i);
  await_service();
}

void EtcdServers::start(std::size_t number, const std::vector<std::string>& flags) {
  const Server& member = servers_[number];
  const std::string for_clients =
      (options_.tls ? "https" : "http") + http_at(member.client_port).substr(4);
  const auto name_of = [](std::size_t i) { return "m" + std::to_string(i); };
  std::string cluster;
  for (std::size_t i = 0; i < size(); ++i) {
    cluster += (i == 0 ? "" : ",") + name_of(i) + "=" + http_at(servers_[i].peer_port);
  }
  std::vector<std::string> argv{etcd_program,
                                "--name",
                                name_of(number),
                                "--data-dir",
                                member.dir / "data",
                                "--listen-client-urls",
                                for_clients,
                                "--advertise-client-urls",
                                for_clients,
                                "--listen-peer-urls",
                                http_at(member.peer_port),
                                "--initial-advertise-peer-urls",
                                http_at(member.peer_port),
                                "--initial-cluster",
                                cluster,
                                "--unsafe-no-fsync",
                                "--log-level",
                                "error"};
  if (options_.tls) {
    const EtcdTls& tls = *options_.tls;
    for (const std::string& each :
         {std::string("--cert-file"), tls.server.file, std::string("--key-file"), tls.server.key,
          std::string("--client-cert-auth"), std::string("--trusted-ca-file"), tls.ca}) {
      argv.push_back(each);
    }
  }
  argv.insert(argv.end(), options_.flags.begin(), options_.flags.end());
  argv.insert(argv.end(), flags.begin(), flags.end());
  run(number, argv);
}

bool EtcdServers::leads(std::size_t member) {
  EtcdClient one({endpoint(member)}, "etcd");
  const json status = one.done({"maintenance/status", json::object()}, long_enough());
  // Member ids are unsigned 64-bit numbers; the field is absent without a leader.
  return status.value("leader", "") == status.at("header").value("member_id", "-");
}

bool EtcdServers::serves(std::size_t member) {
  try {
    EtcdClient({endpoint(member)}, "etcd")
        .done({"kv/range", {{"key", to_base64("x")}}},
              {later(BootClock::now(), milliseconds(1000)), -1});
    return true;
  } catch (const Error& error) {
    // A member that requires a password is up.
    return error.kind() == ErrorKind::denied;
  }
}

Endpoint EtcdServers::endpoint(std::size_t member) const {
  Endpoint endpoint = Ensemble::endpoint(member);
  if (options_.tls) {
    endpoint.tls =
        TlsSettings{options_.tls->ca, options_.tls->client.file, options_.tls->client.key, ""};
  }
  return endpoint;
}

std::string EtcdServers::url(const std::string& login) const {
  return (options_.tls ? "etcds://" : "etcd://") + login + addresses();
}

json EtcdServers::ask(const std::string& path, const json& fields) {
  return client_->done({path, fields}, long_enough());
}

void EtcdServers::clear() {
  for (const EtcdEntry& entry : entries()) {
    if (entry.lease == 0) continue;
    client_->ask({{"lease/revoke", {{"ID", std::to_string(entry.lease)}}}}, long_enough());
  }
  const std::string all(1, '\0');
  ask("kv/deleterange", range_fields(all, all));
}

std::vector<EtcdEntry> EtcdServers::entries() {
  const std::string all(1, '\0');
  return range_in(ask("kv/range", range_fields(all, all))).entries;
}

std::vector<std::string> EtcdServers::keys() {
  std::vector<std::string> names;
  for (const EtcdEntry& entry : entries()) names.push_back(entry.key);
  return names;
}

}  // namespace dlock::test
