#include "support/ensemble.hpp"

#include <signal.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "support/eventually.hpp"

namespace dlock::test {

Endpoint Ensemble::endpoint(std::size_t server) const {
  Endpoint endpoint;
  endpoint.host = "127.0.0.1";
  endpoint.port = servers_[server].client_port.number();
  return endpoint;
}

std::vector<Endpoint> Ensemble::endpoints() const {
  std::vector<Endpoint> all;
  for (std::size_t i = 0; i < size(); ++i) all.push_back(endpoint(i));
  return all;
}

std::string Ensemble::addresses() const {
  return joined(endpoints(), ",", [](const Endpoint& each) { return each.address(); });
}

void Ensemble::run(std::size_t server, const std::vector<std::string>& argv) {
  const ProcessOptions how{.merge = true};
  servers_[server].process.emplace(argv, how);
  servers_[server].stopped = false;
}

void Ensemble::kill_hard(std::size_t server) {
  servers_[server].process->kill_hard();
  servers_[server].process.reset();
}

void Ensemble::stop(std::size_t server) {
  servers_[server].process->stop();
  servers_[server].stopped = true;
}

void Ensemble::cont(std::size_t server) {
  servers_[server].process->signal(SIGCONT);
  servers_[server].stopped = false;
}

std::size_t Ensemble::leader() {
  std::optional<std::size_t> found;
  const bool known = eventually([&] {
    for (std::size_t i = 0; i < size() && !found; ++i) {
      const bool runs = servers_[i].process && !servers_[i].stopped;
      if (runs && without_error([&] { return leads(i); })) found = i;
    }
    return found.has_value();
  });
  if (!known) throw Error(ErrorKind::host_refused, "the servers have no leader");
  return *found;
}

void Ensemble::await_service() {
  for (std::size_t i = 0; i < size(); ++i) {
    const Server& server = servers_[i];
    if (!server.process || server.stopped) continue;
    if (!eventually([&] { return serves(i); }, time_to_come_up)) {
      throw Error(ErrorKind::host_refused, "a server did not come up: " + server.process->out());
    }
  }
}

}  // namespace dlock::test
