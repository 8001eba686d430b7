#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <optional>
#include <span>
#include <string_view>

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

/// The table or text that shows `states` to people.
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
      rows.push_back({state.key.text, holder.kept ? "cooldown" : kind, holder});
    }
  }
  const auto servers = open_redis(settings.server, {});
  for (const auto& [key, lock] : all_foreign_locks(*servers, settings.patterns, settings.prefix,
                                                   inspect_call(settings, settings.patterns))) {
    rows.push_back({key, lock.kind, lock.holder});
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

/// How often Watch reads the locks. Redis notifies only waiters; for watchers, every lock would
/// have to publish every change for the rare case that somebody watches; keyspace events are off by
/// default, and a client should not enable them. Reading the named keys is one round trip. On this
/// host the kernel reports changes of files, but not the expiry of a lease or the death of a
/// process, so Watch reads every second there, too.
constexpr milliseconds between_readings{1000};
/// Watch repeats slow reads (many keys, a distant server) less often, so that they take one
/// part in `share` of the time; but the next one comes after `longest_between_readings` at most.
constexpr int share = 20;
constexpr milliseconds longest_between_readings{10'000};
/// The pause between a notified change and the next read, because changes come in bursts.
constexpr milliseconds after_a_change{100};

/// The part of a state that counts as a change: neither passing time nor a renewal does.
std::string essence_of(KeyState state) {
  for (Holder& holder : state.holders) {
    holder.acquired_at = {};
    holder.held = holder.renewed_ago = milliseconds(0);
    if (holder.lease_left) holder.lease_left = milliseconds(0);
  }
  for (Waiter& waiter : state.waiters) waiter.waiting = milliseconds(0);
  if (state.latch) state.latch->left = milliseconds(0);
  return key_json(state);
}

/// Removes lines from the front of `text`, as many as a pipe accepts whole or not at all, so that a
/// signal does not cut a line; of a longer line, the part that a pipe accepts at once.
std::string take_lines(std::string_view& text) {
  std::string_view most = text.substr(0, PIPE_BUF);
  if (const auto end = most.rfind('\n'); end != std::string_view::npos)
    most = most.substr(0, end + 1);
  text.remove_prefix(most.size());
  return std::string(most);
}

void drain(const Fd& events) {
  char bytes[4096];
  // Limited, because events may arrive all the time; a later call reads the rest.
  constexpr int most_reads = 64;
  for (int i = 0; i < most_reads && events && read(events.get(), bytes, sizeof bytes) > 0; ++i) {
  }
}

/// Shows the locks until a signal arrives that ends dlock, and then dies by that signal.
class Watch {
 public:
  Watch(const InspectSettings& settings, const Log& log) : settings_(settings), log_(log) {
    // Without a picture to remove, signals end and stop dlock as any filter.
    if (!settings.json && screen_at(STDOUT_FILENO).moves_cursor) {
      signals_.emplace().hear_all();
      picture_.emplace(STDOUT_FILENO);
    }
    store_ = open_store(settings);
    if (HostView* here = store_->host_view()) changes_ = here->changes();
  }

  [[noreturn]] void run() {
    while (true) {
      if (BootClock::now() >= next_reading_) look();
      if (reached_) show();
      sleep();
      if (signals_) hear();
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
  int signals_fd() const { return signals_ ? signals_->fd() : -1; }
  [[noreturn]] void end(int signal);

  const InspectSettings& settings_;
  const Log& log_;
  std::optional<Signals> signals_;  ///< only with a picture
  std::optional<Picture> picture_;
  StorePtr store_;
  Fd changes_;  ///< none if the engine does not notify of changes
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
    call_options.cancel_fd = signals_fd();
    states_ = store_->inspect({settings_.keys, settings_.patterns, settings_.free}, call_options);
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
  if (!takes_a_line(STDOUT_FILENO)) return;
  if (!write_all(STDOUT_FILENO, picture_->drawing(text, screen))) end(SIGHUP);
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
  if (!settings_.json) {
    lines = inspect_text(settings_, states_, screen_at(STDOUT_FILENO));
    lines = (first ? "" : "\n") + (lines.empty() ? "no locks\n" : lines);
  }
  for (std::string_view rest = lines; !rest.empty();) print(take_lines(rest));
}

void Watch::sleep() {
  const auto tick = picture_ ? later(BootClock::now(), between_readings) : never;
  pollfd fds[] = {{signals_fd(), POLLIN, 0}, {STDOUT_FILENO, 0, 0}, {changes_.get(), POLLIN, 0}};
  poll_until(fds, std::min(next_reading_, tick));
  // The reader has closed the pipe.
  if ((fds[1].revents & (POLLERR | POLLHUP)) != 0) end(SIGPIPE);
  if (fds[2].revents == 0) return;
  next_reading_ = later(read_at_, after_a_change);
  poll_until(std::span(fds).first(1), next_reading_);
}

void Watch::hear() {
  while (const auto event = signals_->take()) {
    if (ends_waiting(event->number)) end(event->number);
    if (event->number != SIGTSTP) continue;
    picture_->leave();
    stop_by(SIGTSTP, Stop::myself);
  }
}

/// Leaves the last state on the terminal and dies by `signal`.
void Watch::end(int signal) {
  if (picture_) {
    picture_.reset();
    if (reached_ && in_foreground(STDOUT_FILENO) && takes_a_line(STDOUT_FILENO)) {
      write_all(STDOUT_FILENO, inspect_text(settings_, states_now(), screen_at(STDOUT_FILENO)));
    }
  }
  die_of(signal);
}

}  // namespace

int carry_out(const InspectSettings& settings, const Log& log) {
  if (settings.all_kinds) return inspect_all_kinds(settings, log);
  if (settings.watch) Watch(settings, log).run();
  const StorePtr store = open_store(settings, log);
  const auto states = store->inspect({settings.keys, settings.patterns, settings.free},
                                     inspect_call(settings, settings.patterns));
  if (settings.quiet) {
    const bool any_held = std::any_of(states.begin(), states.end(),
                                      [](const KeyState& state) { return !state.holders.empty(); });
    return static_cast<int>(any_held ? ExitCode::ok : ExitCode::all_free);
  }
  print(report(settings, states));
  return 0;
}

}  // namespace dlock
