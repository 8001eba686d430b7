#pragma once

#include "lock/store.hpp"

namespace dlock::test {

/// A store without locks: it refuses, and releases what it is asked to. Tests override the requests
/// whose answers they decide.
class IdleStore : public Store {
 public:
  Answer acquire(const Claim&, const Ask&, const CallOptions&) override { return Refusal{}; }
  Wake sleep(const Claim&, Deadline, int) override { return {}; }
  Renewed renew(const Claim&, const RenewalOptions&, const CallOptions&) override { return {}; }
  ReleaseResult release(const Claim&, const ReleaseOptions&, const CallOptions&) override {
    return {Released::yes};
  }
  std::vector<Holder> evict(const LockKey&, const Eviction&, const CallOptions&) override {
    return {};
  }
  std::vector<KeyState> inspect(const Query&, const CallOptions&) override { return {}; }
  std::string name() const override { return "fake"; }
};

}  // namespace dlock::test
