#pragma once

#include <optional>
#include <string>

#include "base/backoff.hpp"
#include "base/error.hpp"

namespace dlock {

/// Told by a waiter what becomes of its server.
class ServerListener {
 public:
  virtual ~ServerListener() = default;
  virtual void server_lost(const std::string& why) = 0;  ///< while waiting
  virtual void server_back(milliseconds away) = 0;
};

/// The time for which a waiter's server does not answer: told once when it begins and once when it
/// ends, with growing pauses in between.
class Outage {
 public:
  /// `reached`: whether the server has answered before. One that never has is no outage.
  Outage(ServerListener& listener, bool reached) : listener_(listener), reached_(reached) {}

  bool may_begin() const { return reached_; }
  bool lasts() const { return since_.has_value(); }
  /// The server did not answer, for this reason: pauses, until `until` at most.
  void go_on(const Error& why, Deadline until, int cancel_fd);
  /// It has answered.
  void end();

 private:
  static constexpr Backoff usual{milliseconds(50), milliseconds(1000)};

  ServerListener& listener_;
  bool reached_;
  std::optional<Deadline> since_;
  Backoff pauses_ = usual;
};

/// The loop of every wait for a lock or a latch. `ask` asks the server, ends the outage when it has
/// its answer, sleeps until it is time to ask again, and returns a value once the wait is over.
/// `last_look` asks for the last time, at `wait_end`, for the last answer may be as old as the
/// wait; it throws nothing. The loop returns nothing if `cancel_fd` became readable.
template <typename Ask, typename Look>
auto ask_until(Deadline wait_end, int cancel_fd, Outage& outage, const Ask& ask,
               const Look& last_look) -> std::optional<decltype(last_look())> {
  while (true) {
    try {
      if (auto end = ask()) return end;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::interrupted) return std::nullopt;
      const bool may_last = outage.may_begin() && BootClock::now() < wait_end;
      if (error.kind() != ErrorKind::unavailable || !may_last) throw;
      outage.go_on(error, wait_end, cancel_fd);
    }
    if (readable(cancel_fd)) return std::nullopt;
    if (BootClock::now() >= wait_end && !outage.lasts()) return last_look();
  }
}

}  // namespace dlock
