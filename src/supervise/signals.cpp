#include "supervise/signals.hpp"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <span>

#include "base/error.hpp"

namespace dlock {
namespace {

/// Never blocked: these signals report a fault in dlock itself, or cannot be blocked.
constexpr int untouched_signals[] = {SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGFPE,
                                     SIGILL,  SIGTRAP, SIGABRT, SIGSYS};

/// Blocked and never reported. The kernel sends TTIN and TTOU to the whole group: dlock stops with
/// its child, not before it.
constexpr int silenced_signals[] = {SIGTTIN, SIGTTOU, SIGPIPE, SIGXFSZ};

/// These have no effect on a process without a handler, so only a child gets them.
constexpr int child_signals[] = {SIGWINCH, SIGCONT, SIGCHLD, SIGURG};

/// If the kernel sends one of these, it comes from the terminal, to the whole foreground group.
constexpr int terminal_signals[] = {SIGINT, SIGQUIT, SIGTSTP, SIGWINCH, SIGHUP};

bool is_one_of(std::span<const int> signals, int signal) {
  return std::find(signals.begin(), signals.end(), signal) != signals.end();
}

bool ignored(int signal) {
  struct sigaction found {};
  return sigaction(signal, nullptr, &found) == 0 && found.sa_handler == SIG_IGN;
}

}  // namespace

Signals::Signals() {
  sigset_t blocked;
  sigemptyset(&blocked);
  sigemptyset(&heard_);
  const auto hear = [&](int signal) {
    // A blocked signal is queued even if it is ignored, so the fd must not ask for it.
    if (ignored(signal)) return;
    sigaddset(&heard_, signal);
    sigaddset(&blocked, signal);
  };
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    if (ends_waiting(signal)) hear(signal);
  }
  hear(SIGTSTP);
  for (const int signal : silenced_signals) sigaddset(&blocked, signal);
  for (const int signal : child_signals) sigaddset(&blocked, signal);

  // If SIGCHLD were ignored, the kernel would reap the child before its exit code is read.
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &standard, &chld_on_entry_);
  // The wait for a file installs a handler for SIGURG (local/locked_file.cpp), which exec would
  // reset to the default.
  sigaction(SIGURG, nullptr, &urg_on_entry_);
  pthread_sigmask(SIG_BLOCK, &blocked, &mask_on_entry_);
  fd_ = Fd(signalfd(-1, &heard_, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) throw_errno("signalfd");
}

std::optional<Signals::Event> Signals::take() {
  signalfd_siginfo info{};
  if (read(fd_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  const int number = static_cast<int>(info.ssi_signo);
  // When a terminal disconnects, only the leader of the session gets the signal.
  const bool told_alone = number == SIGHUP && getsid(0) == getpid();
  const bool from_terminal =
      info.ssi_code == SI_KERNEL && is_one_of(terminal_signals, number) && !told_alone;
  return Event{number, from_terminal};
}

void Signals::hear_all() {
  for (const int signal : child_signals) sigaddset(&heard_, signal);
  if (signalfd(fd_.get(), &heard_, 0) < 0) throw_errno("signalfd");
}

void Signals::restore_in_child() const {
  if (chld_on_entry_.sa_handler == SIG_IGN) sigaction(SIGCHLD, &chld_on_entry_, nullptr);
  if (urg_on_entry_.sa_handler == SIG_IGN) sigaction(SIGURG, &urg_on_entry_, nullptr);
  pthread_sigmask(SIG_SETMASK, &mask_on_entry_, nullptr);
}

bool ends_waiting(int signal) {
  const bool between_libc_and_kernel = signal > SIGSYS && signal < SIGRTMIN;
  return signal > 0 && signal != SIGTSTP && !between_libc_and_kernel &&
         !is_one_of(untouched_signals, signal) && !is_one_of(silenced_signals, signal) &&
         !is_one_of(child_signals, signal);
}

bool stop_by(int signal, Stop what) {
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  sigset_t before;
  kill(what == Stop::whole_job ? 0 : getpid(), signal);
  pthread_sigmask(SIG_UNBLOCK, &only, &before);  // stops here, and returns when continued
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGCONT) == 1;
}

void die_of(int signal) {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  prctl(PR_SET_DUMPABLE, 0);  // the limit does not apply if core_pattern is a pipe
  ::signal(signal, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  raise(signal);
  _exit(128 + signal);
}

}  // namespace dlock
