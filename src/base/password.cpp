#include "base/password.hpp"

#include <utility>

#include "base/error.hpp"

namespace dlock {

Password::Password(std::string text, std::function<std::string()> read)
    : shared_(std::make_shared<Shared>()) {
  shared_->last = std::move(text);
  shared_->read = std::move(read);
}

std::string Password::text() const {
  const std::lock_guard locked(shared_->lock);
  try {
    if (shared_->read) shared_->last = shared_->read();
  } catch (const Error&) {
    // The server refuses the last one if it is no longer right.
  }
  return shared_->last;
}

bool Password::operator==(const Password& other) const {
  const auto last = [](Shared& shared) {
    const std::lock_guard locked(shared.lock);
    return shared.last;
  };
  return shared_ == other.shared_ || last(*shared_) == last(*other.shared_);
}

}  // namespace dlock
