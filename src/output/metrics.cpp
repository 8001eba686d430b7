#include "output/metrics.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "base/process.hpp"
#include "base/text.hpp"
#include "output/log.hpp"
#include "output/screen.hpp"

namespace dlock {
namespace {

constexpr const char* outcomes[] = {"exited",       "signalled",   "lost",        "max-hold",
                                    "not-acquired", "not-started", "interrupted", "error"};

constexpr const char last_success[] = "dlock_last_success_timestamp_seconds";
constexpr const char last_fence[] = "dlock_last_fence";
constexpr const char losses[] = "dlock_losses_total";
constexpr const char since_success[] = "dlock_runs_since_success";

/// The kinds of runs without a success: skipped because a job still runs; skipped in the cooldown
/// of a job that has just run, mostly on another host; failed.
constexpr const char* results[] = {"skipped", "cooldown", "failed"};

/// The key as the value of a label, escaped so that it can stand in quotes.
std::string in_label(const std::string& key) {
  std::string out;
  for (const char c : is_plain_text(key) ? key : escaped(key)) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? "\\n" : std::string(1, c);
  }
  return out;
}

std::string key_label(const LockKey& key) { return "key=\"" + in_label(key.text) + "\""; }

std::string seconds(milliseconds span) {
  char text[32];
  const auto count = std::max<std::int64_t>(span.count(), 0);
  std::snprintf(text, sizeof text, "%lld.%03d", static_cast<long long>(count / 1000),
                static_cast<int>(count % 1000));
  return text;
}

/// The labels and the value of each sample of a metric.
using Samples = std::vector<std::pair<std::string, std::string>>;

/// Appends a HELP line, a TYPE line and the samples; appends nothing if there are no samples.
void add_metric(std::string& out, const std::string& name, const std::string& type,
                const std::string& help, const Samples& samples) {
  if (samples.empty()) return;
  out += "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
  for (const auto& [labels, value] : samples) out += name + "{" + labels + "} " + value + "\n";
}

/// The value of one sample, if it is a plain decimal number: another program may have written the
/// file. `text` begins with a line feed, so that one precedes each of its lines.
std::optional<std::string> sample_of(std::string_view text, const char* name,
                                     const std::string& labels) {
  constexpr std::size_t longest = 20;
  const std::string start = std::string("\n") + name + "{" + labels + "} ";
  const std::size_t at = text.find(start);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + start.size());
  const std::string value(take_until(text, '\n'));
  const bool is_number =
      !value.empty() && value.find_first_not_of("0123456789.") == std::string::npos &&
      value.front() != '.' && value.back() != '.' && value.find('.') == value.rfind('.');
  return is_number && value.size() <= longest ? std::optional(value) : std::nullopt;
}

std::uint64_t count_of(const std::optional<std::string>& sample) {
  std::uint64_t count = 0;
  if (sample) std::from_chars(sample->data(), sample->data() + sample->size(), count);
  return count;
}

std::optional<Fence> granted(const RunStatus& status, const LockKey& key) {
  for (const LockFence& lock : status.locks) {
    if (lock.key == key && lock.fence != Fence{}) return lock.fence;
  }
  return std::nullopt;
}

/// One of `results`.
const char* result_of(const RunStatus& status) {
  if (!status.gave_up) return "failed";
  const auto& holders = status.gave_up->refusal.held_by;
  return !holders.empty() && in_cooldown(holders) ? "cooldown" : "skipped";
}

/// The time that `better` prefers, among the elements of `list` for which `time` returns one.
template <typename List, typename Time, typename Better>
std::optional<std::string> best(const List& list, const Time& time, const Better& better) {
  std::optional<milliseconds> found;
  for (const auto& each : list) {
    const std::optional<milliseconds> next = time(each);
    if (next && (!found || better(*next, *found))) found = next;
  }
  return found ? std::optional(seconds(*found)) : std::nullopt;
}

std::optional<std::string> oldest_holder(const KeyState& state) {
  const auto held = [](const Holder& each) {
    return each.kept || !each.library.empty() ? std::nullopt : std::optional(each.held);
  };
  return best(state.holders, held, std::greater());
}

std::optional<std::string> oldest_waiter(const KeyState& state) {
  return best(
      state.waiters, [](const Waiter& each) { return each.waiting; }, std::greater());
}

std::optional<std::string> shortest_lease(const KeyState& state) {
  const auto left = [](const Holder& each) { return each.kept ? std::nullopt : each.lease_left; };
  return best(state.holders, left, std::less());
}

std::optional<std::string> newest_fence(const KeyState& state) {
  Fence newest = state.last ? state.last->fence : Fence{};
  for (const Holder& each : state.holders) newest = std::max(newest, each.fence);
  return newest.value > 0 ? std::optional(std::to_string(newest.value)) : std::nullopt;
}

using Sample = std::optional<std::string>;

/// A metric of `inspect` with at most one sample per key.
struct Gauge {
  const char* name;
  const char* help;
  Sample (*value)(const KeyState&);
};

constexpr Gauge lock_gauges[] = {
    {"dlock_holders", "How many owners hold the lock.",
     [](const KeyState& key) { return Sample(std::to_string(key.holders.size())); }},
    {"dlock_waiters", "How many wait for the lock.",
     [](const KeyState& key) { return Sample(std::to_string(key.waiters.size())); }},
    {"dlock_oldest_holder_seconds", "How long the oldest holder has held it.", oldest_holder},
    {"dlock_oldest_waiter_seconds", "How long the oldest waiter has waited.", oldest_waiter},
    {"dlock_lease_left_seconds", "Time left of the lease that expires first.", shortest_lease},
    {"dlock_fence", "The newest fencing token.", newest_fence},
};

constexpr Gauge latch_gauges[] = {
    {"dlock_latch_expected", "How many have to arrive at the latch.",
     [](const KeyState& key) { return Sample(std::to_string(key.latch->count)); }},
    {"dlock_latch_arrived", "How many have arrived at the latch.",
     [](const KeyState& key) { return Sample(std::to_string(key.latch->arrived)); }},
    {"dlock_latch_left_seconds", "Time until the latch expires.",
     [](const KeyState& key) { return Sample(seconds(key.latch->left)); }},
};

constexpr mode_t for_all_to_read = 0644;

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorKind::host_refused, why); }

}  // namespace

std::string run_metrics(const std::vector<LockKey>& keys, const RunStatus& status, WallTime end,
                        std::string_view before) {
  std::string out;
  const auto add = [&](const char* name, const char* type, const char* help, auto value) {
    Samples samples;
    for (const LockKey& key : keys) {
      if (const auto found = value(key)) samples.emplace_back(key_label(key), *found);
    }
    add_metric(out, name, type, help, samples);
  };
  const auto same_for_all = [](const std::string& value) {
    return [value](const LockKey&) { return std::optional(value); };
  };
  const std::string lines_before = "\n" + std::string(before);
  const auto sample_before = [&](const char* name, const LockKey& key) {
    return sample_of(lines_before, name, key_label(key));
  };
  const auto counted_on = [&](const char* name, const std::string& labels, bool one_more) {
    return std::to_string(count_of(sample_of(lines_before, name, labels)) + (one_more ? 1 : 0));
  };
  const bool lost = status.lost || status.outcome == "lost";
  const bool succeeded = status.outcome == "exited" && status.exit_code == 0 && !lost;
  const std::string now = seconds(std::chrono::floor<milliseconds>(end.time_since_epoch()));

  Samples of_outcomes;
  for (const LockKey& key : keys) {
    for (const char* each : outcomes) {
      of_outcomes.emplace_back(key_label(key) + ",outcome=\"" + each + "\"",
                               status.outcome == each ? "1" : "0");
    }
  }
  add_metric(out, "dlock_last_run_outcome", "gauge",
             "How the last run ended: 1 for its outcome, 0 for the others.", of_outcomes);
  add("dlock_last_run_exit_code", "gauge", "Exit status of dlock in the last run.",
      same_for_all(std::to_string(status.exit_code)));
  add("dlock_last_run_timestamp_seconds", "gauge", "When the last run ended.", same_for_all(now));
  add(last_success, "gauge", "When the last run ended that exited with 0; 0 if there was none.",
      [&](const LockKey& key) {
        return std::optional(succeeded ? now : sample_before(last_success, key).value_or("0"));
      });
  Samples of_results;
  for (const LockKey& key : keys) {
    for (const char* each : results) {
      const std::string labels = key_label(key) + ",result=\"" + each + "\"";
      const bool is_it = result_of(status) == std::string_view(each);
      of_results.emplace_back(labels, succeeded ? "0" : counted_on(since_success, labels, is_it));
    }
  }
  add_metric(out, since_success, "gauge", "Runs since the last that exited with 0.", of_results);
  add("dlock_last_run_waited_seconds", "gauge", "Time the last run waited for its locks.",
      same_for_all(seconds(status.waited)));
  add("dlock_last_run_held_seconds", "gauge", "Time the last run held its locks.",
      same_for_all(seconds(status.held)));
  add(last_fence, "gauge", "Fencing token of the last grant.", [&](const LockKey& key) {
    const auto fence = granted(status, key);
    return fence ? std::optional(std::to_string(fence->value)) : sample_before(last_fence, key);
  });
  add(losses, "counter", "Runs that lost their locks.",
      [&](const LockKey& key) { return std::optional(counted_on(losses, key_label(key), lost)); });
  return out;
}

std::string inspect_metrics(const std::vector<KeyState>& states) {
  // Two keys of other clients may get the same label: only the first has a sample.
  std::map<std::string, const KeyState*> locks;
  std::map<std::string, const KeyState*> latches;
  for (const KeyState& state : states) {
    locks.emplace(key_label(state.key), &state);
    if (state.latch) latches.emplace(key_label(state.key), &state);
  }
  std::string out;
  const auto add = [&out](const Gauge& gauge, const auto& keys) {
    Samples samples;
    for (const auto& [label, state] : keys) {
      if (const auto value = gauge.value(*state)) samples.emplace_back(label, *value);
    }
    add_metric(out, gauge.name, "gauge", gauge.help, samples);
  };
  for (const Gauge& gauge : lock_gauges) add(gauge, locks);
  Samples kinds;
  for (const auto& [label, state] : locks) {
    if (state->holders.empty()) continue;
    kinds.emplace_back(label + ",kind=\"" + mode_of(state->holders) + "\"", "1");
  }
  add_metric(out, "dlock_kind", "gauge", "How the lock is held; always 1.", kinds);
  for (const Gauge& gauge : latch_gauges) add(gauge, latches);
  return out;
}

/// Writes a new file, exchanges it with the old one, and removes the old one. It does not sync to
/// disk, because that takes longer than most jobs wait for their lock.
void replace_metrics_file(const std::string& path,
                          const std::function<std::string(std::string_view before)>& text) {
  struct stat status {};
  // The rename would replace /dev/null, or a link to it, by a file.
  if (lstat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    refuse("it is not a regular file");
  }
  const std::string now = text(file_text(path));
  const auto name = path.rfind('/') + 1;
  std::string beside = path.substr(0, name) + "." + path.substr(name) + ".XXXXXX";
  const Fd file(mkostemp(beside.data(), O_CLOEXEC));
  if (!file) refuse(std::strerror(errno));
  bool done = write_all(file.get(), now) && fchmod(file.get(), for_all_to_read) == 0;
  if (done) {
    // A plain rename over a file makes ext4 write the new one to disk first.
    done = renameat2(AT_FDCWD, beside.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0 ||
           rename(beside.c_str(), path.c_str()) == 0;
  }
  const std::string why = std::strerror(errno);
  unlink(beside.c_str());
  if (!done) refuse(why);
}

}  // namespace dlock
