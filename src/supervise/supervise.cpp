#include "supervise/supervise.hpp"

#include <algorithm>
#include <utility>

#include "base/wait.hpp"

namespace dlock {
namespace {

using Reason = Ending::Reason;

/// How often to look at the remaining tree without a SIGCHLD.
constexpr milliseconds rest_interval{1000};

class Supervisor {
 public:
  Supervisor(Child& child, Signals& signals, const SuperviseOptions& options)
      : child_(child), signals_(signals), options_(options) {}

  Ending run();

 private:
  std::optional<Reason> reason_to_stop();
  std::optional<ChildEnd> end();
  /// Whether a deadline has passed at which the child must be stopped.
  bool is_over(Deadline now) const;
  bool loss_matters() const { return options_.loss != nullptr && !loss_noticed_; }
  Deadline loss_deadline() const;
  Deadline max_hold_deadline() const;
  void sleep();
  void ask_child_to_end();

  void hear_signals();
  void reap_adopted();
  void pass_on(const Signals::Event& event);
  void pass_on_to_rest(const Signals::Event& event);
  void stop_with_child(int signal);

  Ending stop(Reason why);
  Deadline kill_deadline(Deadline stopped_at) const;
  void let_it_end(Deadline stopped_at);
  bool tree_gone();

  Child& child_;
  Signals& signals_;
  const SuperviseOptions& options_;
  bool loss_told_ = false;
  bool loss_noticed_ = false;
  bool stopping_ = false;
  bool look_again_ = false;
  bool more_ended_ = false;  ///< dlock has not reaped all ended adopted processes yet
  /// An event that came after a deadline had passed; the deadline is handled first.
  std::optional<Signals::Event> unheard_;
  bool end_is_told_ = false;  ///< the child's pidfd has reported its end
};

Ending Supervisor::run() {
  if (options_.watchdog != nullptr && !options_.wait_tree) {
    options_.watchdog->leave_descendants_of(child_.pid());
  }
  while (true) {
    sleep();
    // After a suspend, a SIGSTOP or a freeze, check the deadlines before passing on a signal or
    // continuing the child.
    const auto reason = reason_to_stop();
    if (options_.watchdog != nullptr && options_.watchdog->has_killed()) return stop(Reason::lost);
    if (const auto ended = end()) return {Reason::ended, *ended, loss_noticed_, {}};
    if (reason) return stop(*reason);
    hear_signals();
  }
}

/// How the child ended, once the processes to wait for have ended; nothing before.
std::optional<ChildEnd> Supervisor::end() {
  if (options_.wait_tree && !tree_gone()) return std::nullopt;
  return child_.reap();
}

void Supervisor::sleep() {
  // After the child's end its pidfd would wake us without end. SIGCHLD reports the end of adopted
  // orphans, and of a child that a debugger has stopped tracing.
  pollfd fds[] = {{end_is_told_ ? -1 : child_.fd(), POLLIN, 0},
                  {signals_.fd(), POLLIN, 0},
                  {loss_matters() ? options_.loss->fd() : -1, POLLIN, 0}};
  const Deadline look_by = loss_matters() ? options_.loss->look_by() : never;
  // If /proc could not be read when the last process ended, no later SIGCHLD reports its end.
  const Deadline look_at_rest = end_is_told_ ? later(BootClock::now(), rest_interval) : never;
  // A SIGCHLD that was taken may be from a process that ended after the last look.
  const bool at_once = std::exchange(look_again_, false);
  const Deadline deadline = std::min(loss_deadline(), max_hold_deadline());
  poll_until(fds, at_once ? BootClock::now() : std::min({deadline, look_by, look_at_rest}));
  end_is_told_ = end_is_told_ || fds[0].revents != 0;
  const bool look = fds[2].revents != 0 || (look_by != never && BootClock::now() >= look_by);
  const auto news = look ? options_.loss->look() : StopSource::News::none;
  loss_told_ = news == StopSource::News::lost;
  if (news == StopSource::News::stop_asked) ask_child_to_end();
}

void Supervisor::ask_child_to_end() {
  pass_on({options_.stop_signal, false});
  if (options_.on_stop_asked) options_.on_stop_asked();
}

/// When a possible loss requires action. With keep_running_on_loss a late renewal requires none:
/// the lock is lost only when the lease has expired.
Deadline Supervisor::loss_deadline() const {
  if (!loss_matters()) return never;
  const Deadline safe_until = options_.loss->safe_until();
  if (safe_until == never || options_.keep_running_on_loss) return safe_until;
  return safe_until - options_.loss->grace(options_.grace) - options_.kill_cost;
}

Deadline Supervisor::max_hold_deadline() const {
  return options_.max_hold ? later(child_.started_at(), *options_.max_hold) : never;
}

bool Supervisor::is_over(Deadline now) const {
  return now >= max_hold_deadline() || (!options_.keep_running_on_loss && now >= loss_deadline());
}

std::optional<Reason> Supervisor::reason_to_stop() {
  const auto now = BootClock::now();
  if (loss_matters() && (now >= loss_deadline() || loss_told_)) {
    loss_noticed_ = true;
    if (!options_.keep_running_on_loss) return Reason::lost;
    options_.loss->look_no_more();
    if (options_.on_loss) options_.on_loss();
  }
  if (now >= max_hold_deadline()) return Reason::max_hold;
  return std::nullopt;
}

/// Returns after one SIGCHLD: a family that forks without end sends the next one at once, and the
/// deadlines must be checked in between.
void Supervisor::hear_signals() {
  if (more_ended_) reap_adopted();
  while (const auto event = unheard_ ? std::exchange(unheard_, {}) : signals_.take()) {
    if (event->number != SIGCHLD) {
      // dlock may have been delayed since it checked the deadlines.
      if (!stopping_ && is_over(BootClock::now())) {
        unheard_ = event;
        look_again_ = true;
        return;
      }
      pass_on(*event);
      continue;
    }
    reap_adopted();
    const auto stopped = child_.stopped();
    if (stopped && !stopping_) stop_with_child(*stopped);
    return;
  }
}

void Supervisor::reap_adopted() {
  look_again_ = true;
  more_ended_ = child_.tree.reap_adopted(child_.pid());
}

void Supervisor::pass_on(const Signals::Event& event) {
  // Asks the kernel: the child may have ended since end() looked.
  if (options_.wait_tree && child_.ended()) return pass_on_to_rest(event);
  const bool own_group_has_it = event.from_terminal;
  child_.send(event.number, own_group_has_it);
}

void Supervisor::pass_on_to_rest(const Signals::Event& event) {
  const pid_t own = getpgrp();
  child_.tree.signal(event.number,
                     [&](pid_t pid) { return !event.from_terminal || getpgid(pid) != own; });
  // A process that stopped because it touched the terminal reacts only after SIGCONT.
  if (ends_waiting(event.number)) child_.tree.signal(SIGCONT);
  if (event.number != SIGTSTP || stopping_ || !child_.terminal.exists()) return;
  if (options_.before_stop) options_.before_stop();
  if (!stop_by(SIGTSTP, Stop::whole_job)) raise(SIGCONT);  // nobody else would continue the rest
}

/// The child was stopped: by ^Z, because it touched the terminal from the background, or by another
/// process. dlock stops the whole job, so that the shell notices it and gets its terminal back.
/// When the job is continued, SIGCONT arrives after the deadlines have been checked.
void Supervisor::stop_with_child(int signal) {
  if (!child_.terminal.exists()) return;
  if (signal == SIGSTOP && !child_.terminal.in_front()) return;  // dlock goes on and renews
  const bool wants_terminal = signal == SIGTTIN || signal == SIGTTOU;
  if (wants_terminal && child_.terminal.in_front()) return child_.send(SIGCONT);
  if (options_.before_stop) options_.before_stop();
  // A shell that has put the job into the foreground during before_stop() does so only once.
  if (wants_terminal && child_.terminal.in_front()) return child_.send(SIGCONT);
  stop_by(signal == SIGSTOP ? SIGTSTP : signal, Stop::whole_job);
}

/// From here on the outcome is fixed, whatever the child does.
Ending Supervisor::stop(Reason why) {
  stopping_ = true;
  if (options_.watchdog != nullptr) options_.watchdog->leave_descendants_of(0);
  if (options_.loss != nullptr) options_.loss->look_no_more();
  let_it_end(BootClock::now());
  const bool by_itself = tree_gone();
  auto survivors =
      by_itself ? std::vector<Survivor>{} : child_.tree.kill(child_.pid(), child_.fd(), signals_);
  Ending ending{why, child_.reap().value_or(ChildEnd{}), loss_noticed_, std::move(survivors)};
  child_.terminal.reset_modes();
  return ending;
}

Deadline Supervisor::kill_deadline(Deadline stopped_at) const {
  const Deadline end_of_grace = later(stopped_at, options_.grace);
  if (options_.loss == nullptr || options_.keep_running_on_loss) return end_of_grace;
  return std::min(end_of_grace, options_.loss->safe_until() - options_.kill_cost);
}

/// The grace: asks the whole tree to end, and waits for it.
void Supervisor::let_it_end(Deadline stopped_at) {
  if (BootClock::now() >= kill_deadline(stopped_at)) return;
  child_.tree.signal(options_.stop_signal);
  child_.tree.signal(SIGCONT);
  while (BootClock::now() < kill_deadline(stopped_at) && !tree_gone()) {
    // The child's pidfd stays readable, so only SIGCHLD reports the end of other processes.
    pollfd fds[] = {{signals_.fd(), POLLIN, 0}};
    const bool at_once = std::exchange(look_again_, false);
    poll_until(fds, at_once ? BootClock::now() : kill_deadline(stopped_at));
    if (BootClock::now() >= kill_deadline(stopped_at)) return;
    hear_signals();
  }
}

bool Supervisor::tree_gone() {
  if (!child_.ended()) return false;
  const auto others = child_.tree.beside(child_.pid());
  if (others == ProcessTree::Beside::unclear) look_again_ = true;
  return others == ProcessTree::Beside::nobody;
}

}  // namespace

Ending supervise(Child& child, Signals& signals, const SuperviseOptions& options) {
  return Supervisor(child, signals, options).run();
}

}  // namespace dlock
