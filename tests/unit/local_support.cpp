#include "local_support.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>

namespace dlock::test {

Claim claim_on(const std::string& key) {
  Claim claim;
  claim.key.text = key;
  claim.owner = new_owner_below(std::nullopt);
  claim.token = new_token(claim.owner);
  claim.ttl = milliseconds(30'000);
  claim.upkeep = Liveness::process;
  claim.who = this_process("test", "");
  return claim;
}

namespace {

/// Sleeps for `claim` until `until`; returns whether the lock was handed over and confirmed.
bool sleep_for_lock(LocalStore& store, const Claim& claim, Deadline until, int& sleeps) {
  while (true) {
    ++sleeps;
    const Wake wake = store.sleep(claim, until, -1);
    if (wake.why == Wake::Reason::granted) {
      return store.renew(claim, {}, {}).grant.has_value();
    }
    if (wake.why != Wake::Reason::changed) return false;
    until = wake.ask_again_at;
  }
}

}  // namespace

int wait_for_lock(LocalStore& store, const Claim& claim) {
  Ask ask{true, std::nullopt};
  int sleeps = 0;
  while (true) {
    const Answer answer = store.acquire(claim, ask, {});
    if (std::holds_alternative<Grant>(answer)) return sleeps;
    const auto& refusal = std::get<Refusal>(answer);
    ask.ticket = refusal.ticket;
    const auto span = std::min(refusal.ask_again_in, milliseconds(25'000));
    if (sleep_for_lock(store, claim, later(BootClock::now(), span), sleeps)) return sleeps;
  }
}

bool try_lock(LocalStore& store, const Claim& claim) {
  return std::holds_alternative<Grant>(store.acquire(claim, {}, {}));
}

Refusal refused(LocalStore& store, const Claim& claim) {
  return std::get<Refusal>(store.acquire(claim, {}, {}));
}

bool may_have_lapsed(Deadline handed_over) {
  return passed_since(handed_over) > milliseconds(1500);
}

Forked::Forked(const std::function<void()>& work) {
  // dlock ignores SIGPIPE as well: a waiter may leave just before its FIFO is written to.
  std::signal(SIGPIPE, SIG_IGN);
  pid_ = fork();
  if (pid_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    work();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "forked process: %s\n", error.what());
    _exit(99);
  }
  _exit(0);
}

Forked::~Forked() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Forked::signal(int number) const { kill(pid_, number); }

int Forked::wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void sleep_for_ever() {
  while (true) ::pause();
}

}  // namespace dlock::test
