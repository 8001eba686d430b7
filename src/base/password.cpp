#include "base/password.hpp"

#include <utility>

#include "base/error.hpp"

namespace dlock {

Password::Password(std::string text) : shared_(std::make_shared<Shared>()) {
  shared_->last = std::move(text);
}

Password::Password(Read read) : shared_(std::make_shared<Shared>()) {
  shared_->read = std::move(read);
  shared_->read_anew({});
}

void Password::Shared::read_anew(const CallOptions& call_options) {
  const Deadline began = BootClock::now();
  last = read(call_options);
  const Deadline ended = BootClock::now();
  fresh_until = later(ended, ended - began);
}

std::string Password::text(const CallOptions& call_options) const {
  Shared& now = *shared_;
  const std::lock_guard locked(now.lock);
  const bool read = now.read && !std::exchange(now.failed, false);
  if (!read || BootClock::now() < now.fresh_until) return now.last;
  try {
    now.read_anew(call_options);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) throw;
    now.failed = true;
    throw_unavailable(error.what(), Cause::password_missing);
  }
  return now.last;
}

bool Password::operator==(const Password& other) const {
  const auto last = [](Shared& shared) {
    const std::lock_guard locked(shared.lock);
    return shared.last;
  };
  return shared_ == other.shared_ || last(*shared_) == last(*other.shared_);
}

}  // namespace dlock
