#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "quorum/node_threads.hpp"
#include "reference/redis_table.hpp"
#include "simulator/world.hpp"

namespace dlock::sim {

/// Records which process of the server serves from now on, and whether it loses no write.
struct RecordProcess {
  std::string run;
  bool always = false;
};
/// A release as sent over the wire.
struct WireRelease {
  Token token;
  reference::ReleaseTerms terms;
};
using Request = std::variant<Vote, Renewal, Rejoining, WireRelease, RecordProcess>;

/// A reply of a server, with the fields that end every reply.
struct Said {
  std::variant<std::monostate, std::variant<Granted, Refused>, std::optional<Granted>, Released>
      answer;
  microseconds clock{0};
  milliseconds quarantine{0};
  std::string remembered_run;  ///< in its memory
  std::string run;             ///< its own
  bool always = false;
};

/// A link as its server sees it.
class Connection {
 public:
  virtual ~Connection() = default;
  virtual void publish(const Message& message) = 0;
  /// The server's process has ended, and its machine reports that.
  virtual void server_gone() = 0;
};

/// One server of a quorum: the reference table, and the record of its process, which puts a
/// restarted server into quarantine. It uses its wall clock for everything.
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
  /// Removes all keys while the server runs.
  void flush();
  bool up() const { return up_; }
  /// Whether its machine reports that nobody listens there.
  bool refuses_links() const { return !up_ && death_ == Death::killed; }
  /// How often the server was started. A link belongs to one process.
  std::uint64_t life() const { return life_; }
  void freeze(Instant until) { thaw_ = std::max(thaw_, until); }
  void thaw_now() { thaw_ = {}; }
  Instant thaw() const { return thaw_; }

  MachineClock& clock() { return clock_; }
  const std::string& name() const { return name_; }
  /// The time until which nobody else is admitted as things are, because of this hold or the
  /// quarantine.
  Instant closed_until(const Token& token) const;
  /// Whether it has such a hold, whose lease lasts.
  bool has(const std::function<bool(const HoldEntry&)>& is_such) const;
  bool has_holder(const Owner& owner) const {
    return has([&](const HoldEntry& hold) { return hold.owner == owner; });
  }
  /// Whether the hold of this token could have rejoined for so long: nobody else held the lock
  /// here, there was no quarantine, and the token was not released here.
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
  microseconds quarantine() const;
  /// The time since when nothing can have been forgotten, as far as the process knows.
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
  microseconds started_;  ///< by its wall clock, as in INFO
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
  std::vector<Token> released_;
  Instant last_busy_{};  ///< the last request while the server had a hold or was in quarantine
};

}  // namespace dlock::sim
