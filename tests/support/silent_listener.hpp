#pragma once

#include "lock/acquire.hpp"

namespace dlock::test {

/// For who wants nothing but the lock.
class SilentListener : public AcquireListener {
 public:
  void waiting(const LockKey&, const Refusal&) override {}
  void let_in(const LockKey&, milliseconds) override {}
  void server_lost(const std::string&) override {}
  void server_back(milliseconds) override {}
};

}  // namespace dlock::test
