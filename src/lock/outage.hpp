#pragma once

#include <optional>
#include <string>

#include "base/clock.hpp"
#include "base/error.hpp"

namespace dlock {

/// What a waiter tells of its server.
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
  explicit Outage(ServerListener& listener) : listener_(listener) {}

  bool lasts() const { return since_.has_value(); }
  /// The server did not answer, for this reason: pauses, until `until` at most.
  void go_on(const Error& why, Deadline until, int cancel_fd);
  /// It has answered.
  void end();

 private:
  ServerListener& listener_;
  std::optional<Deadline> since_;
  milliseconds pause_ = first_pause;
  static constexpr milliseconds first_pause{50};
};

}  // namespace dlock
