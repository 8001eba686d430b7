#include "lock/store.hpp"

#include <exception>

#include "base/escape.hpp"

namespace dlock {

std::optional<Grant> Store::renew_hold(const Claim& claim, Fence, const CallOptions& call_options) {
  return renew(claim.key, claim.token, std::nullopt, call_options);
}

bool Store::command_started(const Claim&, pid_t) { return true; }

bool Store::live_with(const Claim&, pid_t) { return true; }

void Store::leave_to(pid_t) {}

std::optional<QuorumMargin> Store::margin(const Claim&) { return std::nullopt; }

std::optional<Who> Store::evicted_by(const LockKey&, const Token&) const { return std::nullopt; }

std::string evicted_by_text(const Who& by) {
  const std::string reason = by.label.empty() ? "" : ": " + escaped(by.label);
  return "evicted by " + escaped(by.user) + "@" + escaped(by.host) + " pid " +
         std::to_string(by.pid) + reason;
}

std::string gone_from(const Store& store, const LockKey& key, const Token& token) {
  const auto by = store.evicted_by(key, token);
  return by ? evicted_by_text(*by) : store.name() + " no longer has it";
}

std::optional<bool> is_still_held(Store& store, const Claim& claim) {
  constexpr milliseconds longest_look{200};
  try {
    const CallOptions call_options{later(BootClock::now(), longest_look), -1};
    return store.renew(claim.key, claim.token, std::nullopt, call_options).has_value();
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

CallOptions short_call() { return {later(BootClock::now(), silence_of_a_dead_server), -1}; }

milliseconds drift_allowance(milliseconds lease) { return lease / 100 + milliseconds(2); }

Deadline valid_until(Deadline sent, milliseconds lease) {
  return later(sent, lease - drift_allowance(lease));
}

}  // namespace dlock
