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
/// Until the other process has seen to all calls.
constexpr std::chrono::seconds longest_finish = 2 * SideCaller::longest_rest;

/// The other process. A message is the facts as `NAME=value`, a NUL behind each.
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

}  // namespace

Hook::Hook(const std::string& command, const Log& log) : log_(log) {
  try {
    process_.emplace("dlock-hook", [&](SideCaller& side) {
      HookCaller caller(command, log);
      while (const auto message = side.next()) caller.call(side, *message);
    });
  } catch (const Error& error) {
    warn(error.what());
  }
}

void Hook::tell(const Facts& facts) {
  if (!process_) return;
  std::string message;
  for (const auto& [name, value] : facts) message.append(name + "=" + value).push_back('\0');
  const auto sent =
      ::send(process_->channel.get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) warn(std::strerror(errno));
}

void Hook::finish(Signals& signals) {
  if (!process_) return;
  const int channel = process_->channel.get();
  shutdown(channel, SHUT_WR);
  const Deadline give_up = later(BootClock::now(), longest_finish);
  // At its end the other process lets go of its end of the channel.
  pollfd fds[] = {{channel, POLLIN, 0}, {signals.fd(), POLLIN, 0}};
  while (poll_until(fds, give_up) > 0 && fds[0].revents == 0) {
    while (const auto event = signals.take()) {
      if (ends_waiting(event->number)) return;
    }
  }
}

void Hook::warn(const std::string& why) {
  if (!warned_) log_.warning("warning: --hook is not called: " + why);
  warned_ = true;
}

namespace {

/// Empty where the key is kept: its holder has ended.
std::string first_holder(const Refusal& refusal) {
  if (refusal.held_by.empty()) return "";
  const Holder& first = refusal.held_by.front();
  if (!first.library.empty()) return client_text(first);
  return first.kept ? "" : who_text(first.who);
}

}  // namespace

RunReport::RunReport(const RunSettings& settings, const Log& log) : settings_(settings), log_(log) {
  if (settings.hook) hook_.emplace(*settings.hook, log);
}

void RunReport::waiting(const LockKey& key, const Refusal& refusal) {
  if (!hook_) return;
  hook_->tell({{"DLOCK_EVENT", "waiting"},
               {"DLOCK_KEY", key.text},
               {"DLOCK_FENCE", ""},
               {"DLOCK_HOLDER", first_holder(refusal)},
               {"DLOCK_REASON", refusal_text(key, refusal)},
               {"DLOCK_EXIT_CODE", ""},
               {"DLOCK_WHERE", where_}});
}

void RunReport::acquired(const std::vector<LockFence>& locks) { tell("acquired", locks, nullptr); }

void RunReport::lost(const RunStatus& status) {
  if (!loss_told_) tell("lost", status.locks, &status);
  loss_told_ = true;
}

void RunReport::end(const RunStatus& status, bool released, Signals& signals) {
  if (status.lost || status.outcome == "lost") {
    lost(status);
  } else if (released) {
    tell("released", status.locks, &status);
  }
  write_metrics(settings_.metrics_file, settings_.keys, status, log_);
  write_status(settings_.status_fd, status, log_);
  if (hook_) hook_->finish(signals);
}

void RunReport::tell(const char* event, const std::vector<LockFence>& locks,
                     const RunStatus* status) {
  if (!hook_) return;
  const bool ended = status != nullptr && !status->outcome.empty();
  hook_->tell({{"DLOCK_EVENT", event},
               {"DLOCK_KEY", key_list(locks)},
               {"DLOCK_FENCE", fence_list(locks).value_or("")},
               {"DLOCK_HOLDER", ""},
               {"DLOCK_REASON", status != nullptr ? status->reason : ""},
               {"DLOCK_EXIT_CODE", ended ? std::to_string(status->exit_code) : ""},
               {"DLOCK_WHERE", where_}});
}

RunStatus status_of(const Error& error) {
  RunStatus status;
  status.outcome = "error";
  status.reason = error.what();
  status.exit_code = static_cast<int>(exit_code(error.kind()));
  return status;
}

void write_status(std::optional<int> fd, const RunStatus& status, const Log& log) {
  if (!fd || write_all(*fd, status_json(status))) return;
  log.warning("cannot write to --status-fd " + std::to_string(*fd) + ": " + std::strerror(errno));
}

void write_metrics(const std::optional<std::string>& file, const std::vector<LockKey>& keys,
                   const RunStatus& status, const Log& log) {
  // Without a key there is nothing to tell, and the file of the run before stays.
  if (!file || keys.empty()) return;
  try {
    replace_metrics_file(*file, [&](std::string_view before) {
      return run_metrics(keys, status, wall_now(), before);
    });
  } catch (const Error& error) {
    log.warning("warning: cannot write --metrics " + escaped(*file) + ": " + error.what());
  }
}

std::string key_list(const std::vector<LockFence>& locks) {
  return joined(locks, "\n", [](const LockFence& lock) { return lock.key.text; });
}

}  // namespace dlock
