#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "base/call_options.hpp"
#include "base/clock.hpp"

namespace dlock {

/// Redis itself takes no longer one from a client it does not know yet.
inline constexpr std::size_t longest_password = 16384;

/// A password that each login reads anew, so that a rotated one reaches a client that runs. Copies
/// share what was read last; any thread may use one.
class Password {
 public:
  Password(std::string text);
  Password(const char* text) : Password(std::string(text)) {}
  /// Returns the password of now, or throws Error.
  using Read = std::function<std::string(const CallOptions&)>;
  /// The first one is read at once.
  explicit Password(Read read);

  /// For a login now. Throws Error{unavailable} where it cannot be read; the next login then takes
  /// the last one, which may still be right. Logins share one that took as long to read as it is
  /// old: those at several servers come together.
  std::string text(const CallOptions& call_options) const;
  bool operator==(const Password& other) const;

 private:
  struct Shared {
    void read_anew(const CallOptions& call_options);

    std::mutex lock{};
    std::string last{};
    Read read{};
    Deadline fresh_until{};
    bool failed = false;
  };
  std::shared_ptr<Shared> shared_;
};

}  // namespace dlock
