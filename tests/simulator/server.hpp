#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "quorum/node_clients.hpp"
#include "reference/redis_table.hpp"
#include "simulator/world.hpp"

namespace dlock::sim {

/// Writes down which process of the server serves from now on, and whether it loses no write.
struct RecordProcess {
  std::string run;
  bool always = false;
};
/// A release as it goes over the wire.
struct WireRelease {
  Token token;
  reference::ReleaseTerms terms;
};
using Request = std::variant<Vote, Renewal, Rejoining, WireRelease, RecordProcess>;

/// What a server says, with what every reply ends with.
struct Said {
  std::variant<std::monostate, std::variant<Granted, Refused>, std::optional<Granted>, Released>
      answer;
  microseconds clock{0};
  milliseconds guard{0};
  std::string remembered_run;  ///< in its memory
  std::string run;             ///< its own
  bool always = false;
};

/// A link as its server sees it.
class Connection {
 public:
  virtual ~Connection() = default;
  virtual void publish(const Message& message) = 0;
  /// The process of the server has ended, and its machine says so.
  virtual void server_gone() = 0;
};

/// One of the servers of a quorum: the reference table, and the record of its process that guards a
/// restart. Its clock for everything is its wall clock.
class Server final : WaiterNotifier {
 public:
  Server(std::size_t index, MachineClock clock, bool always_fsync, bool fresh);

  Said execute(const Request& request);
  void connected(std::weak_ptr<Connection> connection);
  void listens(const std::shared_ptr<Connection>& connection, const Token& token);
  void listens_no_more(const Connection& connection);

  enum class Death { killed, power_lost };
  enum class Memory { whole, none, of_the_snapshot };
  void take_snapshot() { snapshot_ = memory_; }
  void die(Death death);
  void start(Memory memory);
  /// Somebody removes all its keys while it runs.
  void flush();
  bool up() const { return up_; }
  /// Whether its machine answers that nobody listens there.
  bool refuses_links() const { return !up_ && death_ == Death::killed; }
  /// How often it was started: a link lives in one process.
  std::uint64_t life() const { return life_; }
  void freeze(Instant until) { thaw_ = std::max(thaw_, until); }
  void thaw_now() { thaw_ = {}; }
  Instant thaw() const { return thaw_; }

  MachineClock& clock() { return clock_; }
  const std::string& name() const { return name_; }
  /// Until when nobody else is let in as things are, because of this hold or because of the guard.
  Instant closed_until(const Token& token) const;
  /// Whether it has a hold for that owner.
  bool lets_in(const Owner& owner) const;
  /// Whether it has that hold.
  bool holds(const Token& token) const;
  /// Whether nothing has kept out whoever had the lock by this token for so long: no other inside,
  /// no guard, nor that the token has been given back here.
  bool might_have_rejoined(const Token& token, Span for_so_long) const;
  bool always_fsync() const { return always_fsync_; }

 private:
  struct Alive {
    std::string run;
    microseconds since{0};
    bool always = false;
  };
  struct Contents {
    reference::RedisTable table;
    std::optional<Alive> alive;
  };
  bool wake(const WaiterEntry& waiter, const Message& message) override;
  microseconds wall() const;
  microseconds guard() const;
  /// Since when nothing can have been forgotten, as the process can tell.
  microseconds whole_since() const;
  std::string run() const { return name_ + "." + std::to_string(life_); }
  void check_others(const std::vector<HoldEntry>& before, const Token& token) const;
  std::optional<Granted> granted(const Token& token) const;

  std::string name_;
  MachineClock clock_;
  bool always_fsync_;
  Contents memory_;
  Contents snapshot_;
  bool up_ = true;
  microseconds started_;  ///< by its wall clock, as INFO tells it
  bool flushed_ = false;  ///< since then
  Death death_ = Death::killed;
  std::uint64_t life_ = 1;
  Instant thaw_{};
  std::vector<std::weak_ptr<Connection>> connections_;
  struct Listener {
    std::shared_ptr<Connection> connection;
    Token token;
  };
  std::vector<Listener> listeners_;
  std::vector<Token> given_back_;
  Instant last_busy_{};  ///< when it was last asked for something while somebody was inside
};

}  // namespace dlock::sim
