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

/// The last event of a run that has not lost its lock; null if there is none.
const char* last_event(const RunStatus& status, bool released) {
  if (status.outcome == "not-acquired") return "not-acquired";
  if (status.outcome == "error" || status.outcome == "not-started") return "error";
  return released ? "released" : nullptr;
}

}  // namespace

void RunNotifications::waiting(const LockKey& key, const Refusal& refusal) {
  hook_.call({.event = "waiting",
              .keys = key.text,
              .holder = first_holder(refusal),
              .reason = refusal_text(key, refusal)});
}

void RunNotifications::lost(const RunStatus& status) {
  if (!loss_reported_) report("lost", status);
  loss_reported_ = true;
}

void RunNotifications::end(const RunStatus& status, bool released, Signals& signals) {
  if (status.lost || status.outcome == "lost") {
    lost(status);
  } else if (const char* event = last_event(status, released)) {
    report(event, status);
  }
  write(status);
  hook_.finish(&signals);
}

void RunNotifications::report(const char* event, const RunStatus& status) {
  const bool ended = !status.outcome.empty();
  hook_.call({.event = event,
              .keys = key_list(settings_.keys),
              .fences = fence_list(status.locks).value_or(""),
              .holder = status.gave_up ? first_holder(status.gave_up->refusal) : "",
              .reason = status.reason,
              .exit_code = ended ? std::to_string(status.exit_code) : ""});
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

}  // namespace dlock
