#include "supervise/supervise.hpp"

#include <algorithm>
#include <utility>

#include "base/wait.hpp"
#include "supervise/kill_tree.hpp"

namespace dlock {

namespace {

using Reason = Ending::Reason;

/// How often the rest of a tree is looked at without a SIGCHLD.
constexpr milliseconds rest_interval{1000};

bool is_interrupt(int signal) { return signal == SIGINT || signal == SIGQUIT; }

class Supervisor {
 public:
  Supervisor(Child& child, Signals& signals, const Terms& terms)
      : child_(child), signals_(signals), terms_(terms) {}

  Ending run();

 private:
  std::optional<Reason> reason_to_stop();
  std::optional<ChildEnd> end();
  Deadline next_deadline() const;
  /// Whether the child is to be stopped, whatever else comes.
  bool is_over(Deadline now) const;
  bool loss_matters() const { return terms_.loss != nullptr && !loss_noticed_; }
  Deadline loss_deadline() const;
  Deadline max_hold_deadline() const;
  void sleep();

  void hear_signals();
  void reap_adopted();
  void pass_on(const Signals::Event& event);
  void pass_on_to_rest(const Signals::Event& event);
  void continue_child();
  void stop_with_child(int signal);
  void go_on_without_terminal(bool wants_terminal);

  void take_terminal_back();
  Ending ended_by_itself(const ChildEnd& end);
  Ending stop(Reason why);
  Deadline kill_deadline(Deadline stopped_at) const;
  void let_it_end(Deadline stopped_at);
  bool tree_gone();
  void signal_tree(int signal, bool sent_to_own_group = false) const;

  Child& child_;
  Signals& signals_;
  const Terms& terms_;
  bool loss_told_ = false;
  bool loss_noticed_ = false;
  bool stopping_ = false;
  bool look_again_ = false;
  bool more_ended_ = false;  ///< adopted ones, that are not reaped yet
  /// Came when a deadline was over, which is looked at first.
  std::optional<Signals::Event> unheard_;
  bool told_of_no_terminal_ = false;
  bool only_rest_left_ = false;  ///< the child has ended, and is not reaped
  bool end_is_told_ = false;     ///< by the child's pidfd
  bool had_terminal_ = false;    ///< the child, when it ended
  int passed_on_ = 0;            ///< the interrupt that dlock has passed on last
  Deadline passed_on_at_{};
};

Ending Supervisor::run() {
  if (terms_.watchdog != nullptr && !terms_.wait_tree) terms_.watchdog->spare_rest_of(child_.pid());
  while (true) {
    sleep();
    // After a suspend, a SIGSTOP or a freeze the deadlines come first: before a signal is passed
    // on and before the child is continued.
    const auto reason = reason_to_stop();
    if (terms_.watchdog != nullptr && terms_.watchdog->has_killed()) return stop(Reason::lost);
    if (const auto ended = end()) return ended_by_itself(*ended);
    if (reason) return stop(*reason);
    hear_signals();
  }
}

/// How the child ended, once what is waited for has gone.
std::optional<ChildEnd> Supervisor::end() {
  if (!terms_.wait_tree) return child_.reap();
  if (!child_.ended()) return std::nullopt;
  if (!only_rest_left_) take_terminal_back();
  only_rest_left_ = true;
  if (!tree_gone()) return std::nullopt;
  return child_.reap();
}

void Supervisor::sleep() {
  // From the child's end on its pidfd would wake us for ever. Orphans that fell to us tell their
  // end by SIGCHLD, as the child does once a debugger that traces it lets go of it.
  pollfd fds[] = {{end_is_told_ ? -1 : child_.fd(), POLLIN, 0},
                  {signals_.fd(), POLLIN, 0},
                  {loss_matters() ? terms_.loss->fd() : -1, POLLIN, 0}};
  const Deadline look_by = loss_matters() ? terms_.loss->look_by() : never;
  // Where /proc could not be read at that moment, no SIGCHLD tells of the last end.
  const Deadline look_at_rest = end_is_told_ ? later(BootClock::now(), rest_interval) : never;
  // A SIGCHLD that was taken may tell of what ended after it was looked for.
  const bool at_once = std::exchange(look_again_, false);
  poll_until(fds, at_once ? BootClock::now() : std::min({next_deadline(), look_by, look_at_rest}));
  end_is_told_ = end_is_told_ || fds[0].revents != 0;
  const bool look = fds[2].revents != 0 || (look_by != never && BootClock::now() >= look_by);
  loss_told_ = look && terms_.loss->lost();
}

/// When the loss clock makes us act. A child that is let run on is not hurried by a renewal that
/// is late: its lock is lost only when the lease is over.
Deadline Supervisor::loss_deadline() const {
  if (!loss_matters()) return never;
  const Deadline gone_by = terms_.loss->must_be_gone_by();
  if (gone_by == never || terms_.keep_running_on_loss) return gone_by;
  return gone_by - terms_.loss->grace(terms_.grace) - terms_.kill_cost;
}

Deadline Supervisor::max_hold_deadline() const {
  return terms_.max_hold ? later(child_.started_at(), *terms_.max_hold) : never;
}

Deadline Supervisor::next_deadline() const {
  return std::min(loss_deadline(), max_hold_deadline());
}

bool Supervisor::is_over(Deadline now) const {
  return now >= max_hold_deadline() || (!terms_.keep_running_on_loss && now >= loss_deadline());
}

std::optional<Reason> Supervisor::reason_to_stop() {
  const auto now = BootClock::now();
  if (loss_matters() && (now >= loss_deadline() || loss_told_)) {
    loss_noticed_ = true;
    if (!terms_.keep_running_on_loss) return Reason::lost;
    terms_.loss->keep_by_itself();
    if (terms_.on_loss) terms_.on_loss();
  }
  if (now >= max_hold_deadline()) return Reason::max_hold;
  return std::nullopt;
}

/// Up to one SIGCHLD: a family that forks without end sends the next at once, and again, and the
/// deadlines are to be looked at between them.
void Supervisor::hear_signals() {
  if (more_ended_) reap_adopted();
  while (const auto event = unheard_ ? std::exchange(unheard_, {}) : signals_.take()) {
    if (event->number != SIGCHLD) {
      // dlock may have been held up since it looked at the deadlines.
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
  if (only_rest_left_) return pass_on_to_rest(event);
  if (event.number == SIGCONT) return continue_child();
  // The terminal has sent it to the whole group already.
  if (event.from_terminal && child_.shares_group()) return;
  child_.send(event.number);
  if (!is_interrupt(event.number)) return;
  passed_on_ = event.number;
  passed_on_at_ = BootClock::now();
}

/// The terminal is dlock's again by then, so it is here that ^Z stops the job.
void Supervisor::pass_on_to_rest(const Signals::Event& event) {
  signal_tree(event.number, event.from_terminal && child_.shares_group());
  // A process that has stopped, as it touched the terminal that is dlock's now, hears nothing else.
  if (ends_waiting(event.number)) signal_tree(SIGCONT);
  if (event.number != SIGTSTP || stopping_ || !child_.terminal.exists()) return;
  if (terms_.before_stop) terms_.before_stop();
  if (!stop_by(SIGTSTP, Stop::whole_job)) raise(SIGCONT);  // nobody else would continue them
}

void Supervisor::continue_child() {
  if (!stopping_) child_.terminal.give_again();
  child_.send(SIGCONT);
}

/// The child was stopped: by ^Z, for touching the terminal from the background, or by somebody.
/// A job is stopped as a whole, so that the shell sees it and gets its terminal back. When it is
/// continued we hear SIGCONT, after the deadlines have been looked at.
void Supervisor::stop_with_child(int signal) {
  Terminal& terminal = child_.terminal;
  const bool had_terminal = terminal.given();
  if (signal == SIGSTOP && !had_terminal) return;  // the child's affair: the lock stays held
  if (!terminal.exists()) return;
  const bool wants_terminal = signal == SIGTTIN || signal == SIGTTOU;
  if (wants_terminal && terminal.give()) return child_.send(SIGCONT);
  terminal.take_back();
  if (terms_.before_stop) terms_.before_stop();
  // That took its time: a shell that has brought the job forward meanwhile will not do so again.
  const bool in_front = wants_terminal && terminal.give();
  const bool was_stopped =
      !in_front && stop_by(signal == SIGSTOP ? SIGTSTP : signal, Stop::whole_job);
  // Nobody would ever continue us, nor the child; this way it passes the deadlines, too.
  if (in_front || (!was_stopped && had_terminal)) raise(SIGCONT);
  if (!in_front && !was_stopped && !had_terminal) go_on_without_terminal(wants_terminal);
}

/// Nobody can continue the job: without dlock the kernel would not have stopped the child, and
/// where it wanted the terminal it would have failed. HUP and CONT are what the kernel sends to a
/// stopped process group that is left without a shell. Once, for a child that ignores HUP would be
/// stopped again at once.
void Supervisor::go_on_without_terminal(bool wants_terminal) {
  if (wants_terminal && std::exchange(told_of_no_terminal_, true)) return;
  if (wants_terminal) child_.send(SIGHUP);
  child_.send(SIGCONT);
}

void Supervisor::take_terminal_back() {
  had_terminal_ = had_terminal_ || child_.terminal.given();
  child_.terminal.take_back();
}

Ending Supervisor::ended_by_itself(const ChildEnd& end) {
  take_terminal_back();
  const int signal = end.signal.value_or(0);
  // One that was passed on may be what the child dies of when it has cleaned up. How long that
  // takes has nothing to do with the grace of a lost lock.
  constexpr std::chrono::seconds cleaning_up{10};
  const bool by_dlock =
      signal == passed_on_ && BootClock::now() < later(passed_on_at_, cleaning_up);
  const bool by_terminal = had_terminal_ && is_interrupt(signal) && !by_dlock;
  const Reason why = end.exec_error ? Reason::not_started
                     : end.signal   ? Reason::signalled
                                    : Reason::exited;
  return {why, end, loss_noticed_, {}, by_terminal};
}

/// From here on the outcome is fixed, whatever the child still does.
Ending Supervisor::stop(Reason why) {
  stopping_ = true;
  if (terms_.watchdog != nullptr) terms_.watchdog->spare_nothing();
  if (terms_.loss != nullptr) terms_.loss->keep_by_itself();
  let_it_end(BootClock::now());
  const bool by_itself = tree_gone();
  auto survivors = by_itself ? std::vector<Survivor>{} : kill_tree(child_, signals_);
  Ending ending{why, child_.reap().value_or(ChildEnd{}), loss_noticed_, std::move(survivors)};
  child_.terminal.take_back();
  child_.terminal.reset_modes();
  return ending;
}

Deadline Supervisor::kill_deadline(Deadline stopped_at) const {
  const Deadline end_of_grace = later(stopped_at, terms_.grace);
  if (terms_.loss == nullptr || terms_.keep_running_on_loss) return end_of_grace;
  return std::min(end_of_grace, terms_.loss->must_be_gone_by() - terms_.kill_cost);
}

/// The grace: all of the tree is asked to end, and waited for.
void Supervisor::let_it_end(Deadline stopped_at) {
  if (BootClock::now() >= kill_deadline(stopped_at)) return;
  signal_tree(terms_.stop_signal);
  signal_tree(SIGCONT);
  while (BootClock::now() < kill_deadline(stopped_at) && !tree_gone()) {
    // A pidfd stays readable, so only SIGCHLD tells of what ends besides and after the child.
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

void Supervisor::signal_tree(int signal, bool sent_to_own_group) const {
  // A group is told at once, for those who fork meanwhile, but never the one we are in. It comes
  // last, see ProcessTree::signal.
  const bool group_is_told = sent_to_own_group || !child_.shares_group();
  child_.tree.signal(signal, group_is_told ? child_.group() : 0);
  if (!child_.shares_group()) kill(-child_.group(), signal);
}

}  // namespace

Ending supervise(Child& child, Signals& signals, const Terms& terms) {
  return Supervisor(child, signals, terms).run();
}

}  // namespace dlock
