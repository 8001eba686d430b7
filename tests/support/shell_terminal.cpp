#include "support/shell_terminal.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "support/eventually.hpp"
#include "support/process.hpp"

namespace dlock::test {

const char* const counts_int =
    "'trap \"\" INT QUIT; sleep 60 & trap \"kill $!; exit 9\" QUIT; trap \"echo got-int\" INT; "
    "echo read\"\"y; until wait; do :; done'";

ShellTerminal::ShellTerminal(const std::string& program,
                             const std::map<std::string, std::string>& variables) {
  int master = -1;
  shell_ = forkpty(&master, nullptr, nullptr, nullptr);
  if (shell_ == 0) {
    setenv("PS1", "", 1);
    setenv("TERM", "dumb", 1);
    setenv("D", program.c_str(), 1);
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    execlp("bash", "bash", "--norc", "--noprofile", "--noediting", "-i", nullptr);
    _exit(127);
  }
  master_ = Fd(master);
  fcntl(master, F_SETFL, O_NONBLOCK);
  fcntl(master, F_SETFD, FD_CLOEXEC);
  type("stty -echo noflsh; PS1=; echo terminal-$((1+1))");
  REQUIRE(shows("terminal-2"));
}

ShellTerminal::~ShellTerminal() {
  const pid_t foreground = tcgetpgrp(master_.get());
  if (foreground > 1) kill(-foreground, SIGKILL);
  kill(shell_, SIGKILL);
  waitpid(shell_, nullptr, 0);
}

void ShellTerminal::press(const std::string& keys) {
  CHECK(write(master_.get(), keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()));
}

void ShellTerminal::resize(unsigned short columns) {
  const winsize size{24, columns, 0, 0};
  ioctl(master_.get(), TIOCSWINSZ, &size);
}

bool ShellTerminal::shows(const std::string& text) {
  const bool there = eventually([&] {
    read_screen();
    return screen_.find(text, seen_) != std::string::npos;
  });
  if (there) seen_ = screen_.find(text, seen_) + text.size();
  if (!there) MESSAGE(screen_);
  return there;
}

bool ShellTerminal::in_front(const std::string& program) {
  return eventually([&] {
    const pid_t group = tcgetpgrp(master_.get());
    if (group <= 1 || !is_alive(group)) return false;
    // The program may end between the two checks.
    std::ifstream comm("/proc/" + std::to_string(group) + "/comm");
    std::string name;
    return std::getline(comm, name) && name == program;
  });
}

pid_t ShellTerminal::number() {
  const auto at = seen_;
  CHECK(shows("."));
  return std::atoi(screen_.c_str() + at);
}

std::size_t ShellTerminal::count(const std::string& text) {
  read_screen();
  std::size_t found = 0;
  for (auto at = screen_.find(text); at != std::string::npos; at = screen_.find(text, at + 1)) {
    ++found;
  }
  return found;
}

const std::string& ShellTerminal::screen() {
  read_screen();
  return screen_;
}

void ShellTerminal::read_screen() {
  char block[4096];
  ssize_t got = 0;
  while ((got = read(master_.get(), block, sizeof block)) > 0) {
    screen_.append(block, static_cast<std::size_t>(got));
  }
}

}  // namespace dlock::test
