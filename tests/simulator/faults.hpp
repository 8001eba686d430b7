#pragma once

#include <memory>
#include <vector>

#include "simulator/client.hpp"

namespace dlock::sim {

/// Makes things go wrong in a schedule, until all is healed.
class Faults {
 public:
  Faults(const Plan& plan, Network& network, std::vector<Server>& servers,
         std::vector<std::unique_ptr<Client>>& clients);

  void begin();
  void heal();

 private:
  void next();
  void happen(Fault fault);
  void partition();
  void kill_node();
  void flush_node();
  void freeze_node();
  void kill_client();
  void freeze_client() { stop_client(false); }
  void suspend_client() { stop_client(true); }
  void stop_client(bool suspended);
  void step_clock();
  void interrupt();
  void start(Server& server, Server::Memory memory);

  Span duration();
  Server& any_node() { return servers_[chance().up_to(servers_.size() - 1)]; }
  Client& any_client() { return *clients_[chance().up_to(clients_.size() - 1)]; }
  Chance& chance() { return World::here().chance(); }

  const Plan& plan_;
  Network& network_;
  std::vector<Server>& servers_;
  std::vector<std::unique_ptr<Client>>& clients_;
  bool healed_ = false;
};

}  // namespace dlock::sim
