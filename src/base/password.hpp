#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace dlock {

/// A password that each login reads anew, so that a rotated one reaches a client that runs. Copies
/// share what was read last; any thread may use one.
class Password {
 public:
  Password(std::string text) : Password(std::move(text), {}) {}
  Password(const char* text) : Password(std::string(text)) {}
  /// `read` returns the password of now, or throws Error; `text` is what it returned before.
  Password(std::string text, std::function<std::string()> read);

  /// For a login now. A file may be missing while it is replaced: then the last text counts.
  std::string text() const;
  bool operator==(const Password& other) const;

 private:
  struct Shared {
    std::mutex lock{};
    std::string last{};
    std::function<std::string()> read{};
  };
  std::shared_ptr<Shared> shared_;
};

}  // namespace dlock
