#pragma once

#include <memory>
#include <vector>

#include "simulator/client.hpp"

namespace dlock::sim {

/// Makes things go wrong in a schedule, until all is healed.
class Faults {
 public:
  Faults(const Plan& plan, Network& network, std::vector<Server>& servers,
         std::vector<std::unique_ptr<Client>>& clients)
      : plan_(plan), network_(network), servers_(servers), clients_(clients) {}

  void begin() {
    if (plan_.faults.empty()) return;
    world().after(chance().between(Span(0), 2 * plan_.between_faults), [this] { next(); });
  }
  void heal() {
    world().heal();
    healed_ = true;
    network_.heal();
    for (Server& server : servers_) {
      server.thaw_now();
      start(server, Server::Memory::whole);
    }
    world().tell([] { return std::string("all is healed"); });
    for (const auto& client : clients_) client->healed();
  }

 private:
  void next() {
    if (healed_) return;
    happen(plan_.faults[chance().up_to(plan_.faults.size() - 1)]);
    begin();
  }
  void happen(Fault fault) {
    // In the order of Fault.
    constexpr void (Faults::*all[kinds_of_faults])() = {
        &Faults::partition,      &Faults::kill_node,   &Faults::flush_node,
        &Faults::freeze_node,    &Faults::kill_client, &Faults::freeze_client,
        &Faults::suspend_client, &Faults::step_clock,  &Faults::interrupt};
    (this->*all[static_cast<std::size_t>(fault)])();
  }
  /// Cuts some nodes off from some clients, one way or both.
  void partition() {
    world().count("partitions");
    const Instant until = world().now() + duration();
    const auto ways = chance().up_to(2);
    for (std::size_t client = 0; client < clients_.size(); ++client) {
      const bool this_one = chance().one_in(2);
      for (std::size_t node = 0; this_one && node < servers_.size(); ++node) {
        if (chance().one_in(2)) continue;
        if (ways != 1) network_.cut(client, node, Network::Way::up, until);
        if (ways != 0) network_.cut(client, node, Network::Way::down, until);
        world().tell([&] {
          return "c" + std::to_string(client) +
                 (ways == 0   ? " -/> "
                  : ways == 1 ? " </- "
                              : " </> ") +
                 "m" + std::to_string(node) + " for " + text_of(until - world().now());
        });
      }
    }
  }
  void kill_node() {
    const std::size_t node = chance().up_to(servers_.size() - 1);
    Server& server = servers_[node];
    if (!server.up()) return;
    world().count("nodes killed");
    const auto death = chance().one_in(2) ? Server::Death::killed : Server::Death::power_lost;
    // With wild clocks only the memory keeps the fences growing.
    const bool may_forget = !plan_.wild_clocks && chance().one_in(2);
    const bool forgets_all = may_forget && (server.always_fsync() || chance().one_in(2));
    const auto memory = !may_forget   ? Server::Memory::whole
                        : forgets_all ? Server::Memory::none
                                      : Server::Memory::of_the_snapshot;
    if (memory == Server::Memory::of_the_snapshot) server.take_snapshot();
    const Span lag = memory == Server::Memory::of_the_snapshot ? duration() : Span(0);
    world().after(lag, [this, &server, death, memory] {
      if (healed_ || !server.up()) return;
      world().tell([&] {
        return server.name() + (death == Server::Death::killed ? " is killed" : " loses its power");
      });
      server.die(death);
      world().after(duration(), [this, &server, memory] { start(server, memory); });
    });
  }
  void flush_node() {
    Server& server = any_node();
    // With wild clocks only the memory keeps the fences growing.
    if (plan_.wild_clocks || !server.up()) return;
    server.flush();
    world().count("memories lost");
    world().count("memories lost by a flush");
    world().tell([&] { return server.name() + " is flushed"; });
  }
  void freeze_node() {
    world().count("processes that stood still");
    Server& server = any_node();
    const Span span = duration();
    server.freeze(world().now() + span);
    world().tell([&] { return server.name() + " stands still for " + text_of(span); });
  }
  void kill_client() {
    Client& client = any_client();
    if (client.done() || client.process().killed()) return;
    world().count("clients killed");
    world().tell([&] { return client.process().name() + " is killed"; });
    client.process().kill();
    world().after(duration(), [&client] { client.start(); });
  }
  void freeze_client() { stop_client(false); }
  void suspend_client() { stop_client(true); }
  void stop_client(bool suspended) {
    Client& client = any_client();
    world().count(suspended ? "machines suspended" : "processes that stood still");
    const Span span = duration();
    client.process().freeze(span, suspended);
    world().tell([&] {
      return client.process().name() + (suspended ? " sleeps for " : " stands still for ") +
             text_of(span);
    });
  }
  /// Steps of the clients' clocks are harmless. If a node's clock goes forward, its leases end
  /// early, and exclusion is not promised.
  void step_clock() {
    world().count("clocks set");
    const Span most =
        plan_.wild_clocks ? Span(std::chrono::minutes(5)) : Span(std::chrono::seconds(2));
    if (chance().one_in(2)) {
      Client& client = any_client();
      const Span by = chance().between(-most, most);
      client.wall_stepped(by);
      world().tell([&] { return client.process().name() + "'s clock is set by " + text_of(by); });
      return;
    }
    Server& server = any_node();
    const Span by =
        plan_.wild_clocks ? chance().between(-most, most) : chance().between(-most / 10, Span(0));
    server.clock().step_wall(by);
    world().tell([&] { return server.name() + "'s clock is set by " + text_of(by); });
  }
  void interrupt() {
    world().count("^C");
    any_client().interrupt();
  }
  void start(Server& server, Server::Memory memory) {
    if (server.up()) return;
    server.start(memory);
    if (memory != Server::Memory::whole) world().count("memories lost");
    world().tell([&] {
      return server.name() + " starts " +
             (memory == Server::Memory::whole  ? "with its memory"
              : memory == Server::Memory::none ? "without memory"
                                               : "with what it knew earlier");
    });
  }

  Span duration() { return chance().over_scales(Span(milliseconds(1)), plan_.longest_fault); }
  Server& any_node() { return servers_[chance().up_to(servers_.size() - 1)]; }
  Client& any_client() { return *clients_[chance().up_to(clients_.size() - 1)]; }
  static World& world() { return World::here(); }
  static Chance& chance() { return world().chance(); }

  const Plan& plan_;
  Network& network_;
  std::vector<Server>& servers_;
  std::vector<std::unique_ptr<Client>>& clients_;
  bool healed_ = false;
};

}  // namespace dlock::sim
