#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "simulator/plan.hpp"
#include "simulator/server.hpp"

namespace dlock::sim {

/// Decides how long messages travel in a schedule, and which ways are cut.
class Network {
 public:
  Network(const Plan& plan, std::size_t clients);

  enum class Way { up, down };  ///< to the server; to the client
  Span delay(std::size_t node);
  bool loses();
  bool resets();
  bool doubles();
  void cut(std::size_t client, std::size_t node, Way way, Instant until);
  /// The time from which on messages pass.
  Instant passes_from(std::size_t client, std::size_t node, Way way) const;
  /// Ends all trouble.
  void heal();
  /// The number of a new link. Links are numbered in the order of their creation.
  std::uint64_t next_link() { return ++links_; }
  /// Notes that something of link `number` arrives. Returns whether something of a later one did
  /// before.
  bool overtaken(std::size_t client, std::size_t node, std::uint64_t number);

 private:
  const Plan& plan_;
  bool healed_ = false;
  std::vector<Instant> cut_until_;  ///< by client, node and way
  std::uint64_t links_ = 0;
  std::vector<std::uint64_t> latest_link_;  ///< by client and node
};

/// The client's end of a link.
class LinkEnd {
 public:
  virtual ~LinkEnd() = default;
  virtual void heard(std::uint64_t link, std::uint64_t request, const Said& said) = 0;
  virtual void told(std::uint64_t link, const Message& message) = 0;
  virtual void broken(std::uint64_t link) = 0;
};

/// A connection of one client to one server. Its messages arrive in order or not at all, but may
/// arrive after those of a later connection. It may die without either end noticing.
class Link final : public std::enable_shared_from_this<Link>, public Connection {
 public:
  Link(Network& network, Server& server, std::size_t client, std::size_t node,
       std::weak_ptr<LinkEnd> end, std::uint64_t number);

  void send(std::uint64_t number, Request request);
  /// Called by the client. `silently`: without a message, as when a machine loses its power.
  void close(bool silently);
  bool is_open() const { return client_open_; }
  std::uint64_t number() const { return number_; }

 private:
  using Delivery = std::function<void()>;
  struct Direction {
    std::deque<std::pair<Instant, Delivery>> under_way;
    bool dead = false;  ///< without notice to either end
  };
  void put(Network::Way way, Delivery delivery);
  void deliver_next(Network::Way way);
  Direction& of(Network::Way way) { return way == Network::Way::up ? up_ : down_; }
  void arrive(std::uint64_t number, const Request& request);
  void arrive_again(const Request& request);
  void serve(std::uint64_t number, const Request& request);
  void reset();
  std::string story_of(const Request& request) const;
  void publish(const Message& message) override;
  void server_gone() override { reset(); }

  Network& network_;
  Server& server_;
  std::size_t client_;
  std::size_t node_;
  std::weak_ptr<LinkEnd> end_;
  std::uint64_t number_;
  Direction up_, down_;
  bool client_open_ = true;
  bool server_open_ = true;
  std::uint64_t life_ = 0;  ///< of the server it leads to; 0: not there yet
};

}  // namespace dlock::sim
