#include "doctor/trial_lock.hpp"

#include "base/error.hpp"
#include "base/random.hpp"

namespace dlock {
namespace {

/// Longer than any server that is worth having takes for one request.
constexpr milliseconds longest_request{2000};
constexpr milliseconds scratch_ttl{10'000};

CallOptions call_options() { return {later(BootClock::now(), longest_request), -1}; }

Claim claim_on(const LockKey& key) {
  Claim claim;
  claim.key = key;
  claim.owner = new_owner_below(std::nullopt);
  claim.token = new_token(claim.owner);
  claim.ttl = scratch_ttl;
  claim.who = this_process("dlock-doctor", "");
  return claim;
}

[[noreturn]] void unexpected(const std::string& what) { throw Error(ErrorKind::unavailable, what); }

void give_back(Store& store, const Claim& claim) {
  try {
    store.release(claim, {ReleaseMode::ignore_floor}, call_options());
  } catch (const Error&) {
    // doctor has told the fault already; the lease ends by itself.
  }
}

std::chrono::nanoseconds hand_over(Store& first, Store& second, const Claim& held,
                                   const Claim& waiting) {
  if (!std::holds_alternative<Grant>(first.acquire(held, {}, call_options()))) {
    unexpected("a free key was refused");
  }
  const Answer answer = second.acquire(waiting, {true, std::nullopt}, call_options());
  if (!std::holds_alternative<Refusal>(answer)) unexpected("a held key was granted to another");
  const Deadline begun = BootClock::now();
  if (first.release(held, {}, call_options()).outcome != Released::yes) {
    unexpected("a lock was lost at once");
  }
  if (second.sleep(waiting, call_options().deadline, -1).why != Wake::Reason::granted) {
    unexpected("a waiter was not told that its lock was free");
  }
  const auto taken = BootClock::now() - begun;
  if (!second.renew(waiting, {}, call_options()).grant) {
    unexpected("a lock that was handed over could not be renewed");
  }
  if (second.release(waiting, {}, call_options()).outcome != Released::yes) {
    unexpected("a lock could not be released");
  }
  return taken;
}

}  // namespace

LockKey scratch_key() {
  constexpr std::size_t bytes_of_a_name = 8;
  return LockKey{"dlock-doctor-" + random_hex(bytes_of_a_name)};
}

TrialLock hold_trial_lock(Store& first, Store& second, const LockKey& key) {
  const Claim held = claim_on(key);
  const Claim waiting = claim_on(key);
  try {
    return {{}, hand_over(first, second, held, waiting)};
  } catch (const Error& error) {
    give_back(second, waiting);
    give_back(first, held);
    return {{error.what(), error.cause()}, {}};
  }
}

}  // namespace dlock
