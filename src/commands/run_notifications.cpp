#include "commands/run_notifications.hpp"

#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "commands/lock_acquirer.hpp"
#include "output/metrics.hpp"
#include "output/sentences.hpp"

namespace dlock {
namespace {

/// The value of DLOCK_HOLDER; empty in a cooldown, because the holder has ended.
std::string first_holder(const Refusal& refusal) {
  if (refusal.held_by.empty()) return "";
  const Holder& first = refusal.held_by.front();
  if (!first.library.empty()) return client_text(first);
  return first.kept ? "" : who_text(first.who);
}

}  // namespace

void RunNotifications::waiting(const LockKey& key, const Refusal& refusal) {
  hook_.call(
      {"waiting", key.text, "", first_holder(refusal), refusal_text(key, refusal), "", where_});
}

void RunNotifications::lost(const RunStatus& status) {
  if (!loss_reported_) report("lost", status);
  loss_reported_ = true;
}

void RunNotifications::end(const RunStatus& status, bool released, Signals& signals) {
  if (status.lost || status.outcome == "lost") {
    lost(status);
  } else if (released) {
    report("released", status);
  }
  write(status);
  hook_.finish(signals);
}

void RunNotifications::report(const char* event, const RunStatus& status) {
  const bool ended = !status.outcome.empty();
  hook_.call({event, key_list(status.locks), fence_list(status.locks).value_or(""), "",
              status.reason, ended ? std::to_string(status.exit_code) : "", where_});
}

void RunNotifications::write(const RunStatus& status) {
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
