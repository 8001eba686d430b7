#include "lock/store.hpp"

#include "base/text.hpp"
#include "base/wait.hpp"

namespace dlock {

std::optional<Wake::Reason> end_of_sleep(Deadline until, int cancel_fd) {
  if (readable(cancel_fd)) return Wake::Reason::interrupted;
  if (BootClock::now() >= until) return Wake::Reason::due;
  return std::nullopt;
}

namespace {

std::string by_text(const Who& by) {
  const std::string reason = by.label.empty() ? "" : ": " + escaped(by.label);
  return " by " + escaped(by.user) + "@" + escaped(by.host) + " pid " + std::to_string(by.pid) +
         reason;
}

}  // namespace

std::string evicted_by_text(const Who& by) { return "evicted" + by_text(by); }

std::string stop_asked_by_text(const Who& by) { return "asked to stop" + by_text(by); }

std::string gone_text(const Store& store, const std::optional<Who>& evicted_by) {
  return evicted_by ? evicted_by_text(*evicted_by) : store.name() + " no longer has it";
}

bool needs_renewal(Store& store, const Claim& claim) {
  return claim.upkeep == Liveness::renewal || store.host_view() == nullptr;
}

CallOptions short_call() { return {later(BootClock::now(), silence_of_a_dead_server), -1}; }

}  // namespace dlock
