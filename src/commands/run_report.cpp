#include "commands/run_report.hpp"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

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
/// The time that dlock waits until the side process has made all calls.
constexpr std::chrono::seconds longest_finish = 2 * SideCaller::longest_rest;

/// The code of the hook process. A message is a list of facts `NAME=value`, each followed by a NUL.
class HookCaller {
 public:
  HookCaller(const std::string& command, const Log& log) : command_(command), log_(log) {}

  void call(SideCaller& side, const std::string& message) {
    try {
      const auto status = side.call(command_, longest_call, [&] { prepare(message); });
      if (!status) return warn("was stopped: it ran for too long");
      if (*status != 0) warn(end_of_call(*status));
    } catch (const Error& error) {
      warn(std::string("was not called: ") + error.what());
    }
  }

 private:
  static void prepare(const std::string& message) {
    dup2(STDERR_FILENO, STDOUT_FILENO);
    for (std::size_t at = 0; at < message.size();) {
      const std::string fact = message.c_str() + at;
      const auto equals = fact.find('=');
      const std::string name = fact.substr(0, equals);
      const std::string value = fact.substr(equals + 1);
      value.empty() ? unsetenv(name.c_str())                   // NOLINT(concurrency-mt-unsafe)
                    : setenv(name.c_str(), value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
      at += fact.size() + 1;
    }
  }

  void warn(const std::string& what) {
    if (!warned_) log_.warning("warning: the command of --hook " + what);
    warned_ = true;
  }

  const std::string& command_;
  const Log& log_;
  bool warned_ = false;
};

/// Empty in a cooldown, because the holder has ended.
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
      HookCaller caller(*settings.hook, log);
      while (const auto message = side.next()) caller.call(side, *message);
    });
  } catch (const Error& error) {
    warn(error.what());
  }
}

/// Does not wait for the call. Only the first failure is reported.
void RunReport::call_hook(const Facts& facts) {
  if (!hook_) return;
  std::string message;
  for (const auto& [name, value] : facts) message.append(name + "=" + value).push_back('\0');
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
  call_hook({{"DLOCK_EVENT", "waiting"},
             {"DLOCK_KEY", key.text},
             {"DLOCK_FENCE", ""},
             {"DLOCK_HOLDER", first_holder(refusal)},
             {"DLOCK_REASON", refusal_text(key, refusal)},
             {"DLOCK_EXIT_CODE", ""},
             {"DLOCK_WHERE", where_}});
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
  write_results(settings_.metrics_file, settings_.keys, settings_.status_fd, status, log_);
  finish_hook(signals);
}

void RunReport::report(const char* event, const RunStatus& status) {
  const bool ended = !status.outcome.empty();
  call_hook({{"DLOCK_EVENT", event},
             {"DLOCK_KEY", key_list(status.locks)},
             {"DLOCK_FENCE", fence_list(status.locks).value_or("")},
             {"DLOCK_HOLDER", ""},
             {"DLOCK_REASON", status.reason},
             {"DLOCK_EXIT_CODE", ended ? std::to_string(status.exit_code) : ""},
             {"DLOCK_WHERE", where_}});
}

RunStatus status_of(const Error& error) {
  RunStatus status;
  status.outcome = "error";
  status.reason = error.what();
  status.exit_code = static_cast<int>(exit_code(error.kind()));
  return status;
}

void write_results(const std::optional<std::string>& metrics_file, const std::vector<LockKey>& keys,
                   std::optional<int> status_fd, const RunStatus& status, const Log& log) {
  // Without keys there is no metric to write, and the file of the previous run stays.
  if (metrics_file && !keys.empty()) {
    try {
      replace_metrics_file(*metrics_file, [&](std::string_view before) {
        return run_metrics(keys, status, wall_now(), before);
      });
    } catch (const Error& error) {
      log.warning("warning: cannot write --metrics " + escaped(*metrics_file) + ": " +
                  error.what());
    }
  }
  if (!status_fd || write_all(*status_fd, status_json(status))) return;
  log.warning("cannot write to --status-fd " + std::to_string(*status_fd) + ": " +
              std::strerror(errno));
}

std::string key_list(const std::vector<LockFence>& locks) {
  return joined(locks, "\n", [](const LockFence& lock) { return lock.key.text; });
}

}  // namespace dlock
