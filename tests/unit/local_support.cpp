#include "local_support.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

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

bool try_lock(LocalStore& store, const Claim& claim) {
  return std::holds_alternative<Grant>(store.acquire(claim, {}, {}));
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
