#include "commands/run_report.hpp"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "commands/lock_acquirer.hpp"
#include "output/metrics.hpp"
#include "output/sentences.hpp"

namespace dlock {
namespace {

constexpr std::chrono::seconds longest_call{30};
/// How long dlock waits for the side process to make all its calls.
constexpr std::chrono::seconds longest_finish = 2 * SideCaller::longest_rest;

/// Sets the variables of a message: a list of `NAME=value`, each followed by a NUL. An empty value
/// removes the variable.
void set_variables(const std::string& message) {
  for (std::string_view rest = message; !rest.empty();) {
    std::string_view fact = take_until(rest, '\0');
    const std::string name(take_until(fact, '='));
    const std::string value(fact);
    value.empty() ? unsetenv(name.c_str())                   // NOLINT(concurrency-mt-unsafe)
                  : setenv(name.c_str(), value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
  }
}

/// Calls the command of --hook, in the side process. Returns what failed; empty if nothing did.
std::string call(SideCaller& side, const std::string& command, const std::string& message) {
  try {
    const auto status = side.call(command, longest_call, [&] {
      dup2(STDERR_FILENO, STDOUT_FILENO);
      set_variables(message);
    });
    if (!status) return "was stopped: it ran for too long";
    return *status == 0 ? "" : end_of_call(*status);
  } catch (const Error& error) {
    return std::string("was not called: ") + error.what();
  }
}

/// The value of DLOCK_HOLDER; empty in a cooldown, because the holder has ended.
std::string first_holder(const Refusal& refusal) {
  if (refusal.held_by.empty()) return "";
  const Holder& first = refusal.held_by.front();
  if (!first.library.empty()) return client_text(first);
  return first.kept ? "" : who_text(first.who);
}

}  // namespace

RunReport::RunReport(const RunSettings& settings, const Log& log) : settings_(settings), log_(log) {
  if (!settings.hook) return;
  try {
    hook_.emplace("dlock-hook", [&](SideCaller& side) {
      bool warned = false;
      while (const auto message = side.next()) {
        const std::string fault = call(side, *settings.hook, *message);
        if (fault.empty() || std::exchange(warned, true)) continue;
        log.warning("warning: the command of --hook " + fault);
      }
    });
  } catch (const Error& error) {
    warn(error.what());
  }
}

/// Asks the side process for a call, without waiting for it. Reports only the first failure.
void RunReport::call_hook(const char* event, const std::string& keys, const std::string& fences,
                          const std::string& holder, const std::string& reason,
                          const std::string& exit_code) {
  if (!hook_) return;
  const std::pair<const char*, std::string> facts[] = {{"EVENT", event},   {"KEY", keys},
                                                       {"FENCE", fences},  {"HOLDER", holder},
                                                       {"REASON", reason}, {"EXIT_CODE", exit_code},
                                                       {"WHERE", where_}};
  std::string message;
  for (const auto& [name, value] : facts) {
    message.append("DLOCK_").append(name).append("=" + value).push_back('\0');
  }
  const auto sent =
      send(hook_->channel.get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) warn(std::strerror(errno));
}

void RunReport::finish_hook(Signals& signals) {
  if (!hook_) return;
  const int channel = hook_->channel.get();
  shutdown(channel, SHUT_WR);
  const Deadline give_up = later(BootClock::now(), longest_finish);
  // The side process closes its end of the channel when it ends.
  pollfd fds[] = {{channel, POLLIN, 0}, {signals.fd(), POLLIN, 0}};
  while (poll_until(fds, give_up) > 0 && fds[0].revents == 0) {
    while (const auto event = signals.take()) {
      if (ends_waiting(event->number)) return;
    }
  }
}

void RunReport::warn(const std::string& why) {
  if (!warned_) log_.warning("warning: --hook is not called: " + why);
  warned_ = true;
}

void RunReport::waiting(const LockKey& key, const Refusal& refusal) {
  call_hook("waiting", key.text, "", first_holder(refusal), refusal_text(key, refusal), "");
}

void RunReport::lost(const RunStatus& status) {
  if (!loss_reported_) report("lost", status);
  loss_reported_ = true;
}

void RunReport::end(const RunStatus& status, bool released, Signals& signals) {
  if (status.lost || status.outcome == "lost") {
    lost(status);
  } else if (released) {
    report("released", status);
  }
  write(status);
  finish_hook(signals);
}

void RunReport::report(const char* event, const RunStatus& status) {
  const bool ended = !status.outcome.empty();
  call_hook(event, key_list(status.locks), fence_list(status.locks).value_or(""), "", status.reason,
            ended ? std::to_string(status.exit_code) : "");
}

void RunReport::write(const RunStatus& status) {
  const auto& file = settings_.metrics_file;
  const auto& fd = settings_.status_fd;
  // Without keys there is no metric to write, and the file of the previous run stays.
  if (file && !settings_.keys.empty()) {
    try {
      replace_metrics_file(*file, [&](std::string_view before) {
        return run_metrics(settings_.keys, status, wall_now(), before);
      });
    } catch (const Error& error) {
      log_.warning("warning: cannot write --metrics " + escaped(*file) + ": " + error.what());
    }
  }
  if (!fd || write_all(*fd, status_json(status))) return;
  log_.warning("cannot write to --status-fd " + std::to_string(*fd) + ": " + std::strerror(errno));
}

std::string key_list(const std::vector<LockFence>& locks) {
  return joined(locks, "\n", [](const LockFence& lock) { return lock.key.text; });
}

}  // namespace dlock
