#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <map>
#include <optional>
#include <span>
#include <string_view>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "commands/commands.hpp"
#include "commands/open_store.hpp"
#include "compat/foreign_lock.hpp"
#include "output/json.hpp"
#include "output/metrics.hpp"
#include "output/screen.hpp"
#include "output/sentences.hpp"
#include "output/table.hpp"
#include "supervise/signals.hpp"

namespace dlock {
namespace {

/// The output for `states` in text.
std::string inspect_text(const InspectSettings& settings, const std::vector<KeyState>& states,
                         const Screen& screen) {
  const bool one_key = settings.patterns.empty() && settings.keys.size() == 1;
  return one_key ? key_text(states.front(), screen) : overview_text(states, screen);
}

std::string report(const InspectSettings& settings, const std::vector<KeyState>& states) {
  if (settings.metrics) return inspect_metrics(states);
  if (!settings.json) {
    const Screen screen = screen_at(STDOUT_FILENO);
    // Programs count the lines of a pipe, so an empty list prints nothing there.
    if (states.empty() && screen.is_terminal) return "no locks\n";
    return inspect_text(settings, states, screen);
  }
  std::string text;
  for (const KeyState& state : states) text += key_json(state);
  return text;
}

/// Lists dlock's own locks first, then those of other libraries.
std::vector<KindRow> rows_of_all_kinds(const InspectSettings& settings, const Log& log) {
  std::vector<KindRow> rows;
  const StorePtr store = open_store(settings, log);
  for (const KeyState& state :
       store->inspect({{}, settings.patterns}, inspect_call(settings, settings.patterns))) {
    for (const Holder& holder : state.holders) {
      const char* kind = holder.limit == exclusive  ? "lock"
                         : holder.limit.unlimited() ? "shared lock"
                                                    : "semaphore";
      rows.push_back({state.key.text, "dlock", holder.kept ? "cooldown" : kind, holder});
    }
  }
  const auto servers = open_redis(settings.server, {});
  for (const auto& [key, lock] : all_foreign_locks(*servers, settings.patterns, settings.prefix,
                                                   inspect_call(settings, settings.patterns))) {
    rows.push_back({key, lock.holder.library, lock.kind, lock.holder});
  }
  return rows;
}

int inspect_all_kinds(const InspectSettings& settings, const Log& log) {
  const auto rows = rows_of_all_kinds(settings, log);
  if (settings.quiet) return static_cast<int>(rows.empty() ? ExitCode::all_free : ExitCode::ok);
  const Screen screen = screen_at(STDOUT_FILENO);
  std::string text;
  if (settings.json) {
    for (const KindRow& row : rows) text += kind_json(row);
  } else {
    text = rows.empty() && screen.is_terminal ? "no locks\n" : kinds_text(rows, screen);
  }
  print(text);
  return 0;
}

/// How often the locks are read. Redis notifies only waiters. To notify watchers, every lock would
/// have to publish every change for the rare case that somebody watches; keyspace events are off by
/// default, and a client should not enable them. Reading the named keys is one round trip. On this
/// host changes of files are notified, but the expiry of a lease and the death of a process are
/// not, so this reads every second there, too.
constexpr milliseconds between_readings{1000};
/// Slow reads, of many keys or over a long distance, are done less often: they may take one part in
/// `share` of the time. After a single slow read the next one still comes soon.
constexpr int share = 20;
constexpr milliseconds longest_between_readings{10'000};
/// Notified changes come in bursts.
constexpr milliseconds after_a_change{100};

/// The part of a state that counts as a change: neither passing time nor a renewal does.
std::string essence_of(KeyState state) {
  for (Holder& holder : state.holders) {
    holder.acquired_at = {};
    holder.held = milliseconds(0);
    if (holder.lease_left) holder.lease_left = milliseconds(0);
  }
  for (Waiter& waiter : state.waiters) waiter.waiting = milliseconds(0);
  if (state.latch) state.latch->left = milliseconds(0);
  return key_json(state);
}

/// The lines that a pipe accepts at once; of a longer line, as much as it accepts.
std::string_view fitting_lines(std::string_view text) {
  const std::string_view most = text.substr(0, PIPE_BUF);
  const auto end = most.rfind('\n');
  return end == std::string_view::npos ? most : most.substr(0, end + 1);
}

void drain(const Fd& events) {
  char bytes[4096];
  // Events that arrive during this are drained after the next read.
  constexpr int most_reads = 64;
  for (int i = 0; i < most_reads && events && read(events.get(), bytes, sizeof bytes) > 0; ++i) {
  }
}

/// Empty if the engine does not notify of changes.
Fd changes_at(Store& store) {
  HostView* here = store.host_view();
  return here == nullptr ? Fd() : here->changes();
}

/// Shows the locks until a signal ends it, and dies by that signal.
class Watch {
 public:
  Watch(const InspectSettings& settings, const Log& log)
      : settings_(settings),
        log_(log),
        store_(open_store(settings)),
        changes_(changes_at(*store_)) {
    signals_.hear_all();
    if (!settings.json && screen_at(STDOUT_FILENO).moves_cursor) picture_.emplace(STDOUT_FILENO);
  }

  [[noreturn]] void run() {
    while (true) {
      if (BootClock::now() >= next_reading_) look();
      if (reached_) show();
      sleep();
      hear();
    }
  }

 private:
  using Essences = std::map<LockKey, std::string>;

  void look();
  void show();
  void draw();
  std::vector<KeyState> states_now() const;
  void print_changes();
  void sleep();
  void hear();
  std::string heading(const Screen& screen) const;
  void write(const std::string& text);
  bool is_written(const std::string& text);
  [[noreturn]] void end(int signal);

  const InspectSettings& settings_;
  const Log& log_;
  Signals signals_;
  StorePtr store_;
  Fd changes_;
  std::optional<Picture> picture_;
  std::vector<KeyState> states_;
  Deadline read_at_{};
  Deadline next_reading_{};
  bool reached_ = false;
  std::optional<Deadline> away_since_;
  std::string trouble_;  ///< the error while the server is unreachable
  std::optional<Essences> printed_;
};

void Watch::look() {
  drain(changes_);
  const auto begun = BootClock::now();
  try {
    CallOptions call_options = inspect_call(settings_, settings_.patterns);
    call_options.cancel_fd = signals_.fd();
    states_ = store_->inspect({settings_.keys, settings_.patterns}, call_options);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) return;
    if (!reached_ || error.kind() != ErrorKind::unavailable) throw;
    next_reading_ = later(BootClock::now(), between_readings);
    trouble_ = error.what();
    if (!away_since_ && !picture_) log_.notice(server_lost_text(trouble_, "watching"));
    if (!away_since_) away_since_ = begun;
    return;
  }
  reached_ = true;
  read_at_ = BootClock::now();
  const auto took = std::chrono::ceil<milliseconds>(read_at_ - begun);
  next_reading_ =
      later(read_at_, std::clamp(took * share, between_readings, longest_between_readings));
  if (away_since_ && !picture_) {
    const auto away = std::chrono::floor<milliseconds>(read_at_ - *away_since_);
    log_.notice(server_back_text(away, "watching"));
  }
  away_since_.reset();
}

void Watch::show() { picture_ ? draw() : print_changes(); }

std::string Watch::heading(const Screen& screen) const {
  std::vector<std::string> names = settings_.patterns;
  for (const LockKey& key : settings_.keys) names.push_back(key.text);
  const bool all = settings_.keys.empty() && names == std::vector<std::string>{"*"};
  const auto shown = [&](const std::string& name) { return screen.shown(name); };
  const std::string seconds = iso8601(wall_now()).substr(11, 8);
  return seconds + "Z  " + (all ? "all locks" : joined(names, " ", shown)) + " at " +
         store_->name();
}

std::vector<KeyState> Watch::states_now() const {
  auto states = states_;
  const auto passed = passed_since(read_at_);
  for (KeyState& state : states) age_by(state, passed);
  return states;
}

void Watch::draw() {
  const Screen screen = screen_at(STDOUT_FILENO);
  const auto states = states_now();
  const auto line = [&](const std::string& text, Tone tone) {
    return screen.toned(screen.fitted(text, screen.columns), tone) + "\n";
  };
  std::string text = line(heading(screen), Tone::faint);
  if (away_since_) text += line(trouble_ + "; trying again", Tone::bad);
  text += "\n" + inspect_text(settings_, states, screen);
  if (states.empty()) text += "no locks\n";
  if (!is_written(picture_->drawing(text, screen))) end(SIGHUP);
}

void Watch::print_changes() {
  Essences essences;
  std::string lines;
  for (const KeyState& state : states_) {
    const auto& essence = essences[state.key] = essence_of(state);
    const bool known = printed_ && printed_->count(state.key) > 0;
    if (!known || printed_->at(state.key) != essence) lines += key_json(state);
  }
  if (printed_) {
    for (const auto& [key, essence] : *printed_) {
      if (essences.count(key) == 0) lines += key_json(KeyState{key});
    }
  }
  const bool first = !printed_;
  if (printed_ == essences) return;
  printed_ = std::move(essences);
  if (settings_.json) return write(lines);
  const std::string text = inspect_text(settings_, states_, screen_at(STDOUT_FILENO));
  write((first ? "" : "\n") + (text.empty() ? "no locks\n" : text));
}

void Watch::sleep() {
  const auto tick = picture_ ? later(BootClock::now(), between_readings) : never;
  pollfd fds[] = {{signals_.fd(), POLLIN, 0}, {STDOUT_FILENO, 0, 0}, {changes_.get(), POLLIN, 0}};
  poll_until(fds, std::min(next_reading_, tick));
  // The reader has closed the pipe.
  if ((fds[1].revents & (POLLERR | POLLHUP)) != 0) end(SIGPIPE);
  if (fds[2].revents == 0) return;
  next_reading_ = later(read_at_, after_a_change);
  poll_until(std::span(fds).first(1), next_reading_);
}

void Watch::hear() {
  while (const auto event = signals_.take()) {
    if (ends_waiting(event->number)) end(event->number);
    if (event->number != SIGTSTP) continue;
    if (picture_) picture_->leave();
    stop_by(SIGTSTP, Stop::myself);
  }
}

void Watch::write(const std::string& text) {
  if (is_written(text)) return;
  if (errno == EPIPE) end(SIGPIPE);
  throw_errno("cannot write");
}

/// Writes at most as much at once as a pipe accepts without blocking, so that signals are noticed
/// even if the reader is slow. It writes whole lines, so that a signal does not cut one; a longer
/// line is finished first if the reader takes it. Returns false, with errno, if writing fails.
bool Watch::is_written(const std::string& text) {
  std::string_view rest = text;
  bool within_line = false;
  while (!rest.empty()) {
    pollfd fds[] = {{signals_.fd(), POLLIN, 0}, {STDOUT_FILENO, POLLOUT, 0}};
    poll_until(fds, never);
    if (fds[0].revents != 0 && !(within_line && fds[1].revents != 0)) hear();
    // A stop has left the alternate screen; the rest would appear on the normal one.
    if (picture_ && !picture_->drawn()) return true;
    if (fds[1].revents == 0) continue;
    const std::string_view lines = fitting_lines(rest);
    const auto written = ::write(STDOUT_FILENO, lines.data(), lines.size());
    if (written < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (written < 0) return false;
    if (written > 0) within_line = rest[static_cast<std::size_t>(written) - 1] != '\n';
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

/// Leaves the last state on the terminal and dies by `signal`.
void Watch::end(int signal) {
  if (picture_) {
    picture_.reset();
    if (reached_ && in_foreground(STDOUT_FILENO) && takes_a_line(STDOUT_FILENO)) {
      write_all(STDOUT_FILENO, inspect_text(settings_, states_now(), screen_at(STDOUT_FILENO)));
    }
  }
  store_.reset();
  die_of(signal);
}

}  // namespace

int carry_out(const InspectSettings& settings, const Log& log) {
  if (settings.all_kinds) return inspect_all_kinds(settings, log);
  if (settings.watch) Watch(settings, log).run();
  const StorePtr store = open_store(settings, log);
  const auto states =
      store->inspect({settings.keys, settings.patterns}, inspect_call(settings, settings.patterns));
  if (settings.quiet) {
    const bool any_held = std::any_of(states.begin(), states.end(),
                                      [](const KeyState& state) { return !state.holders.empty(); });
    return static_cast<int>(any_held ? ExitCode::ok : ExitCode::all_free);
  }
  print(report(settings, states));
  return 0;
}

}  // namespace dlock
