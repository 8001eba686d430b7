#pragma once

#include "lock/acquire.hpp"

namespace dlock::test {

/// A listener that ignores all reports, for tests that want only the lock.
class SilentListener : public AcquireListener {
 public:
  void waiting(const LockKey&, const Refusal&) override {}
  void on_acquired(const LockKey&) override {}
  void server_lost(const std::string&) override {}
  void server_back(milliseconds) override {}
};

}  // namespace dlock::test
