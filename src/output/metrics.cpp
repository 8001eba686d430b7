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
#include "base/text.hpp"
#include "output/log.hpp"

namespace dlock {
namespace {

constexpr const char* outcomes[] = {"exited",       "signalled",   "lost",        "max-hold",
                                    "not-acquired", "not-started", "interrupted", "error"};

constexpr const char last_success[] = "dlock_last_success_timestamp_seconds";
constexpr const char last_fence[] = "dlock_last_fence";
constexpr const char losses[] = "dlock_losses_total";

/// Whether a terminal may be shown `text`, but for its tabs and line feeds.
bool shows_as_it_is(std::string_view text) {
  while (!text.empty()) {
    const auto point = first_code_point(text);
    if (!point) return false;
    const bool is_blank = point->value == '\n' || point->value == '\t';
    if (!is_blank && !shows_as_itself(point->value)) return false;
    text.remove_prefix(point->bytes);
  }
  return true;
}

/// A label's value within its quotes.
std::string in_label(const std::string& key) {
  std::string out;
  for (const char c : shows_as_it_is(key) ? key : escaped(key)) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? "\\n" : std::string(1, c);
  }
  return out;
}

std::string key_label(const LockKey& key) { return "key=\"" + in_label(key.text) + "\""; }

std::string seconds(std::int64_t milli) {
  char text[32];
  const auto count = std::max<std::int64_t>(milli, 0);
  std::snprintf(text, sizeof text, "%lld.%03d", static_cast<long long>(count / 1000),
                static_cast<int>(count % 1000));
  return text;
}

std::string seconds(milliseconds span) { return seconds(span.count()); }

/// One metric: its samples stand together, after its two comments.
class Metric {
 public:
  Metric(std::string& out, const char* name, const char* type, const char* help)
      : out_(out), name_(name), type_(type), help_(help) {}

  void add(const std::string& labels, const std::string& value) {
    if (!begun_) {
      out_ += std::string("# HELP ") + name_ + " " + help_ + "\n";
      out_ += std::string("# TYPE ") + name_ + " " + type_ + "\n";
    }
    begun_ = true;
    out_ += name_ + ("{" + labels) + "} " + value + "\n";
  }

 private:
  std::string& out_;
  const char* name_;
  const char* type_;
  const char* help_;
  bool begun_ = false;
};

/// The value of one sample of `text`, if it is a plain decimal number: the file may be anybody's.
std::optional<std::string> sample_of(std::string_view text, const char* name,
                                     const std::string& labels) {
  const std::string start = std::string(name) + "{" + labels + "} ";
  std::size_t at = text.find(start);
  while (at != std::string_view::npos && at > 0 && text[at - 1] != '\n') {
    at = text.find(start, at + 1);
  }
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view value = text.substr(at + start.size());
  value = value.substr(0, value.find('\n'));
  constexpr std::size_t longest = 20;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto point = std::find_if_not(value.begin(), value.end(), is_digit);
  const bool whole = point == value.end();
  const bool fraction = !whole && *point == '.' && point + 1 != value.end() &&
                        std::all_of(point + 1, value.end(), is_digit);
  const bool is_number = !value.empty() && point != value.begin() && (whole || fraction);
  if (!is_number || value.size() > longest) return std::nullopt;
  return std::string(value);
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

/// Of the smallest limit inside: it decides which others may join.
const char* kind_of(const std::vector<Holder>& holders) {
  if (std::all_of(holders.begin(), holders.end(), [](const Holder& h) { return h.kept; })) {
    return "cooldown";
  }
  const auto any = [&](auto is) { return std::any_of(holders.begin(), holders.end(), is); };
  if (any([](const Holder& h) { return h.limit == exclusive; })) return "exclusive";
  if (any([](const Holder& h) { return !h.limit.unlimited(); })) return "semaphore";
  return "shared";
}

using Labelled = std::map<std::string, const KeyState*>;

/// A metric with at most one sample a key.
void add_each(std::string& out, const Labelled& states, const char* name, const char* help,
              const std::function<std::optional<std::string>(const KeyState&)>& value) {
  Metric metric(out, name, "gauge", help);
  for (const auto& [label, state] : states) {
    if (const auto found = value(*state)) metric.add(label, *found);
  }
}

std::optional<std::string> oldest_holder(const KeyState& state) {
  std::optional<milliseconds> oldest;
  for (const Holder& each : state.holders) {
    if (!each.kept && each.library.empty())
      oldest = std::max(oldest.value_or(each.held), each.held);
  }
  return oldest ? std::optional(seconds(*oldest)) : std::nullopt;
}

std::optional<std::string> oldest_waiter(const KeyState& state) {
  std::optional<milliseconds> oldest;
  for (const Waiter& each : state.waiters) {
    oldest = std::max(oldest.value_or(each.waiting), each.waiting);
  }
  return oldest ? std::optional(seconds(*oldest)) : std::nullopt;
}

std::optional<std::string> shortest_lease(const KeyState& state) {
  std::optional<milliseconds> shortest;
  for (const Holder& each : state.holders) {
    if (!each.lease_left || each.kept) continue;
    shortest = std::min(shortest.value_or(*each.lease_left), *each.lease_left);
  }
  return shortest ? std::optional(seconds(*shortest)) : std::nullopt;
}

std::optional<std::string> newest_fence(const KeyState& state) {
  Fence newest = state.last ? state.last->fence : Fence{};
  for (const Holder& each : state.holders) newest = std::max(newest, each.fence);
  return newest.value > 0 ? std::optional(std::to_string(newest.value)) : std::nullopt;
}

void add_latches(std::string& out, const Labelled& states) {
  const auto add = [&](const char* name, const char* help, auto value) {
    add_each(out, states, name, help, [&](const KeyState& state) {
      return state.latch ? std::optional(value(*state.latch)) : std::nullopt;
    });
  };
  add("dlock_latch_expected", "How many have to arrive at the latch.",
      [](const LatchState& latch) { return std::to_string(latch.count); });
  add("dlock_latch_arrived", "How many have arrived at the latch.",
      [](const LatchState& latch) { return std::to_string(latch.arrived); });
  add("dlock_latch_left_seconds", "Time until the latch expires.",
      [](const LatchState& latch) { return seconds(latch.left); });
}

}  // namespace

std::string run_metrics(const std::vector<LockKey>& keys, const RunStatus& status, WallTime end,
                        std::string_view before) {
  std::string out;
  const auto add = [&](const char* name, const char* type, const char* help, auto value) {
    Metric metric(out, name, type, help);
    for (const LockKey& key : keys) {
      if (const auto found = value(key)) metric.add(key_label(key), *found);
    }
  };
  const auto same_for_all = [](const std::string& value) {
    return [value](const LockKey&) { return std::optional(value); };
  };
  const auto sample_before = [&](const char* name, const LockKey& key) {
    return sample_of(before, name, key_label(key));
  };
  const bool lost = status.lost || status.outcome == "lost";
  const bool succeeded = status.outcome == "exited" && status.exit_code == 0 && !lost;
  const auto milli = std::chrono::floor<milliseconds>(end.time_since_epoch()).count();

  Metric outcome(out, "dlock_last_run_outcome", "gauge",
                 "How the last run ended: 1 for its outcome, 0 for the others.");
  for (const LockKey& key : keys) {
    for (const char* each : outcomes) {
      outcome.add(key_label(key) + ",outcome=\"" + each + "\"", status.outcome == each ? "1" : "0");
    }
  }
  add("dlock_last_run_exit_code", "gauge", "Exit status of dlock in the last run.",
      same_for_all(std::to_string(status.exit_code)));
  add("dlock_last_run_timestamp_seconds", "gauge", "When the last run ended.",
      same_for_all(seconds(milli)));
  add(last_success, "gauge", "When the last run ended that exited with 0; 0 if there was none.",
      [&](const LockKey& key) {
        return std::optional(succeeded ? seconds(milli)
                                       : sample_before(last_success, key).value_or("0"));
      });
  add("dlock_last_run_waited_seconds", "gauge", "Time the last run waited for its locks.",
      same_for_all(seconds(status.waited)));
  add("dlock_last_run_held_seconds", "gauge", "Time the last run held its locks.",
      same_for_all(seconds(status.held)));
  add(last_fence, "gauge", "Fencing token of the last grant.", [&](const LockKey& key) {
    const auto fence = granted(status, key);
    return fence ? std::optional(std::to_string(fence->value)) : sample_before(last_fence, key);
  });
  add(losses, "counter", "Runs that lost their locks.", [&](const LockKey& key) {
    return std::optional(std::to_string(count_of(sample_before(losses, key)) + (lost ? 1 : 0)));
  });
  return out;
}

std::string inspect_metrics(const std::vector<KeyState>& states) {
  // One sample a key, also where two keys of a foreign client look alike.
  Labelled labelled;
  for (const KeyState& state : states) labelled.emplace(key_label(state.key), &state);
  std::string out;
  add_each(out, labelled, "dlock_holders", "How many owners hold the lock.",
           [](const KeyState& state) { return std::to_string(state.holders.size()); });
  add_each(out, labelled, "dlock_waiters", "How many wait for the lock.",
           [](const KeyState& state) { return std::to_string(state.waiters.size()); });
  add_each(out, labelled, "dlock_oldest_holder_seconds", "How long the oldest holder has held it.",
           oldest_holder);
  add_each(out, labelled, "dlock_oldest_waiter_seconds", "How long the oldest waiter has waited.",
           oldest_waiter);
  add_each(out, labelled, "dlock_lease_left_seconds", "Time left of the lease that expires first.",
           shortest_lease);
  add_each(out, labelled, "dlock_fence", "The newest fencing token.", newest_fence);
  Metric kind(out, "dlock_kind", "gauge", "How the lock is held; always 1.");
  for (const auto& [label, state] : labelled) {
    if (state->holders.empty()) continue;
    kind.add(label + ",kind=\"" + kind_of(state->holders) + "\"", "1");
  }
  add_latches(out, labelled);
  return out;
}

namespace {

/// A file of ours is far below that; of another only the beginning is looked at.
constexpr std::size_t most_read = 1 << 20;
constexpr mode_t for_all_to_read = 0644;

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorKind::host_refused, why); }
[[noreturn]] void refuse_errno() { refuse(std::strerror(errno)); }

/// A rename would put a file in the place of /dev/null, or of a link to it.
void refuse_what_is_no_file(const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    refuse("it is not a regular file");
  }
}

std::string text_of(const std::string& path) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  std::string text;
  if (!file) return text;
  char part[4096];
  while (text.size() < most_read) {
    const auto got = read(file.get(), part, sizeof part);
    if (got <= 0) break;
    text.append(part, static_cast<std::size_t>(got));
  }
  return text;
}

/// A file that takes another's place; what is left under its own name is removed. Nothing is forced
/// to the disk: that takes longer than most jobs wait for their lock.
class Replacement {
 public:
  explicit Replacement(const std::string& path) : path_(path) {
    const auto name = path.rfind('/') + 1;
    beside_ = path.substr(0, name) + "." + path.substr(name) + ".XXXXXX";
    file_ = Fd(mkostemp(beside_.data(), O_CLOEXEC));
    if (!file_) refuse_errno();
  }
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;
  ~Replacement() {
    if (!in_place_) unlink(beside_.c_str());
  }

  void fill(const std::string& text) {
    if (!write_all(file_.get(), text) || fchmod(file_.get(), for_all_to_read) != 0) refuse_errno();
  }

  void take_place() {
    // A rename over a file makes ext4 write the new one out first.
    const bool exchanged =
        renameat2(AT_FDCWD, beside_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) == 0;
    if (exchanged) return;
    if (rename(beside_.c_str(), path_.c_str()) != 0) refuse_errno();
    in_place_ = true;
  }

 private:
  const std::string& path_;
  std::string beside_;
  Fd file_;
  bool in_place_ = false;
};

}  // namespace

void replace_metrics_file(const std::string& path,
                          const std::function<std::string(std::string_view before)>& text) {
  refuse_what_is_no_file(path);
  const std::string now = text(text_of(path));
  Replacement file(path);
  file.fill(now);
  file.take_place();
}

}  // namespace dlock
