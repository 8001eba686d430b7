#pragma once

#include <optional>
#include <string>

#include "base/error.hpp"
#include "base/wait.hpp"

namespace dlock {

/// How long after the end of a wait the server may still answer a request sent during the wait.
constexpr milliseconds time_for_a_last_answer{1000};

/// Outage calls it when a waiter's server stops answering, and when the server answers again.
class ServerListener {
 public:
  virtual ~ServerListener() = default;
  virtual void server_lost(const std::string& why) = 0;  ///< `why`: the error of the last try
  virtual void server_back(milliseconds away) = 0;
};

/// A period in which a waiter's server does not answer. It tells the listener when the second try
/// fails, or at once if a login is refused, and when the outage ends. The pauses between retries
/// grow.
class Outage {
 public:
  /// `reached`: whether the server has answered before. `wait_is_chosen`: whether the user has set
  /// the length of the wait, which then includes waiting for a server that is not started yet.
  Outage(ServerListener& listener, bool reached, bool wait_is_chosen)
      : listener_(listener), reached_(reached), wait_is_chosen_(wait_is_chosen) {}

  bool reached() const { return reached_; }
  bool lasts() const { return since_.has_value(); }
  /// Whether a waiter asks again after this error. Before its first answer a server may say "later"
  /// (busy, loading, full), but an unsuitable server stays so. After its first answer the server
  /// may refuse a login for a while, for example while its password is rotated.
  bool may_pass(const Error& why) const;
  /// Notes that the server did not answer, and pauses, until `until` at most.
  void go_on(const Error& why, Deadline until, int cancel_fd);
  /// Notes that the server has answered.
  void end();

 private:
  static constexpr Backoff usual{milliseconds(50), milliseconds(1000)};

  ServerListener& listener_;
  bool reached_;
  bool wait_is_chosen_;
  std::optional<Deadline> since_;
  bool told_ = false;           ///< the listener knows of this outage
  bool login_refused_ = false;  ///< during this outage
  Backoff pauses_ = usual;
};

/// The loop of every wait for a lock or a latch. `ask` asks the server, ends the outage when it has
/// the answer, sleeps until it is time to ask again, and returns a value when the wait is over.
/// `last_look` asks once more at `wait_end`, because the last answer may be as old as the wait; it
/// never throws. The loop returns nothing if `cancel_fd` became readable.
template <typename Ask, typename Look>
auto ask_until(Deadline wait_end, int cancel_fd, Outage& outage, const Ask& ask,
               const Look& last_look) -> std::optional<decltype(last_look())> {
  while (true) {
    try {
      if (auto end = ask()) return end;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::interrupted) return std::nullopt;
      if (!outage.may_pass(error) || BootClock::now() >= wait_end) throw;
      outage.go_on(error, wait_end, cancel_fd);
    }
    if (readable(cancel_fd)) return std::nullopt;
    if (BootClock::now() >= wait_end && !outage.lasts()) return last_look();
  }
}

}  // namespace dlock
