#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "base/process.hpp"
#include "commands/acquiring.hpp"
#include "commands/commands.hpp"
#include "output/json.hpp"

namespace dlock {
namespace {

/// What others will see is the script that called: dlock itself is gone in a moment.
Who calling_process(const std::string& label) {
  Who who = this_process(command_name(getppid()), label);
  who.pid = getppid();
  return who;
}

std::string report(const Settings& settings, const std::vector<Held>& held,
                   const std::vector<LockFence>& fences) {
  const Token& token = held.front().claim.token;
  if (settings.json) return grant_json(token, *settings.ttl, fences);
  if (!settings.env) return token.text + "\n";
  std::string numbers;
  for (const LockFence& lock : fences) {
    numbers += (numbers.empty() ? "" : ",") + std::to_string(lock.fence.value);
  }
  return "DLOCK_TOKEN=" + token.text + "\nDLOCK_FENCE=" + numbers + "\n";
}

}  // namespace

int acquire_command(const Settings& settings, const Log& log) {
  Signals signals;
  Acquiring acquiring(settings, log, signals, Upkeep::renewal, calling_process(settings.label));
  const auto result = acquiring.acquire();
  if (result.signal) acquiring.die_of(*result.signal);
  if (result.gave_up) {
    tell_refusal(log, *result.gave_up, result.waited);
    return static_cast<int>(ExitCode::not_acquired);
  }
  const auto give_all_back = [&] {
    std::vector<Claim> claims;
    for (const Held& held : result.held) claims.push_back(held.claim);
    constexpr milliseconds time_to_give_back{2000};
    give_back(acquiring.store(), claims, {later(BootClock::now(), time_to_give_back), -1});
  };
  while (const auto event = signals.take()) {
    if (!ends_waiting(event->number)) continue;
    give_all_back();
    acquiring.die_of(event->number);
  }
  if (settings.quiet) return 0;
  if (!write_all(STDOUT_FILENO, report(settings, result.held, acquiring.fences(result.held)))) {
    const std::string why = std::strerror(errno);
    give_all_back();
    throw Error(Trouble::host_refused,
                "cannot write the token, so the lock was given back: " + why);
  }
  return 0;
}

}  // namespace dlock
