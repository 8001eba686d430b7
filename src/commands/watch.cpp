#include "commands/watch.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <map>
#include <optional>
#include <string_view>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "commands/open_store.hpp"
#include "output/json.hpp"
#include "output/screen.hpp"
#include "output/sentences.hpp"
#include "output/table.hpp"
#include "supervise/signals.hpp"

namespace dlock {
namespace {

/// How often the locks are read. A Redis tells waiters alone, and those only what is theirs: to
/// have it tell watchers of every change, each lock would have to publish each change for the rare
/// case that somebody watches, and keyspace events are off by default and no client's to turn on.
/// Reading the named keys is one round trip. On this host the files' changes are told; but nothing
/// tells of a lease that ends or of a process that dies, so there, too, it looks once a second.
constexpr milliseconds between_readings{1000};
/// Where a reading takes long, for there are many keys or the way is far, it is done less often: it
/// takes at most this share of the time. But a server that was slow once is read again soon.
constexpr int share = 20;
constexpr milliseconds longest_between_readings{10'000};
/// Changes that are told come in bursts.
constexpr milliseconds after_a_change{100};

/// What makes a change: not that time has passed, nor that a lease was renewed.
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

/// The lines that a pipe takes at once; of a line that is longer, as much as it takes.
std::string_view fitting_lines(std::string_view text) {
  const std::string_view most = text.substr(0, PIPE_BUF);
  const auto end = most.rfind('\n');
  return end == std::string_view::npos ? most : most.substr(0, end + 1);
}

void drain(const Fd& events) {
  char bytes[4096];
  // What comes meanwhile is drained after the next look.
  constexpr int most_reads = 64;
  for (int i = 0; i < most_reads && events && read(events.get(), bytes, sizeof bytes) > 0; ++i) {
  }
}

/// Where the engine cannot tell of changes, an empty one.
Fd changes_at(Store& store) {
  HostView* here = store.host_view();
  return here == nullptr ? Fd() : here->changes();
}

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
  std::string trouble_;  ///< while the server is away
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
  // Nobody reads any more.
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

/// Writes no more at once than a pipe takes without standing still, so that signals are heard also
/// while nobody reads; and whole lines, so that a signal leaves no part of one. A line that is
/// longer is finished first for a reader that takes it. False, with errno, if it cannot be written.
bool Watch::is_written(const std::string& text) {
  std::string_view rest = text;
  bool within_line = false;
  while (!rest.empty()) {
    pollfd fds[] = {{signals_.fd(), POLLIN, 0}, {STDOUT_FILENO, POLLOUT, 0}};
    poll_until(fds, never);
    if (fds[0].revents != 0 && !(within_line && fds[1].revents != 0)) hear();
    // A stop has left the picture: the rest of it would stand on the first screen.
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

/// What was seen last stays on the terminal.
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

std::string inspect_text(const InspectSettings& settings, const std::vector<KeyState>& states,
                         const Screen& screen) {
  const bool one_key = settings.patterns.empty() && settings.keys.size() == 1;
  return one_key ? key_text(states.front(), screen) : overview_text(states, screen);
}

void watch(const InspectSettings& settings, const Log& log) { Watch(settings, log).run(); }

}  // namespace dlock
