#include "base/program.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "base/side_process.hpp"
#include "base/text.hpp"

namespace dlock {
namespace {

/// One output of the program.
struct Output {
  Output() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw_errno("pipe");
    from = Fd(ends[0]);
    to = Fd(ends[1]);
    fcntl(from.get(), F_SETFL, O_NONBLOCK);
  }
  /// Takes what has been written; at the end, no more is to come.
  void take() {
    char part[4096];
    ssize_t count = 0;
    while ((count = read(from.get(), part, sizeof part)) > 0) text.append(part, part + count);
    if (count == 0) from.reset();
  }
  Fd from;
  Fd to;
  std::string text;
};

/// The program gets the signals as a shell would start it, in its own process group.
pid_t start(const std::vector<std::string>& argv, const Output& out, const Output& err) {
  std::vector<std::string> arguments = argv;
  std::vector<char*> pointers;
  for (std::string& each : arguments) pointers.push_back(each.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, out.to.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, err.to.get(), STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  pid_t pid = -1;
  const int error =
      posix_spawnp(&pid, argv.front().c_str(), &files, &attributes, pointers.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error == 0) return pid;
  throw_usage(escaped(argv.front()) + ": " +
              (error == ENOENT ? "command not found" : std::strerror(error)));
}

}  // namespace

std::string output_of(const std::vector<std::string>& argv, const CallOptions& call_options) {
  Output out, err;
  const pid_t pid = start(argv, out, err);
  out.to.reset();
  err.to.reset();
  while (out.from || err.from) {
    pollfd fds[] = {{out.from.get(), POLLIN, 0},
                    {err.from.get(), POLLIN, 0},
                    {call_options.cancel_fd, POLLIN, 0}};
    const bool late = poll_until(fds, call_options.deadline) == 0;
    if (late || fds[2].revents != 0) {
      kill(-pid, SIGKILL);
      waitpid(pid, nullptr, 0);
      if (!late) throw_interrupted();
      throw_unavailable(escaped(argv.front()) + ": no answer in time");
    }
    if (fds[0].revents != 0) out.take();
    if (fds[1].revents != 0) err.take();
  }
  int status = 0;
  // The supervisor of COMMAND may have reaped this child, too; then only its output tells.
  const bool reaped = waitpid(pid, &status, 0) == pid;
  if (!reaped || status == 0) return std::move(out.text);
  const std::string said = err.text.substr(0, err.text.find('\n'));
  throw_usage(escaped(argv.front()) + ": " + (said.empty() ? end_of_call(status) : escaped(said)));
}

}  // namespace dlock
