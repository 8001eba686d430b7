#include "commands/run_report.hpp"

#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "base/escape.hpp"
#include "base/join.hpp"
#include "commands/lock_acquirer.hpp"
#include "output/metrics.hpp"
#include "output/metrics_file.hpp"
#include "output/sentences.hpp"

namespace dlock {

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
