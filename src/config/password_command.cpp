#include "config/password_command.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>

#include "base/endpoint.hpp"
#include "base/error.hpp"
#include "base/fd.hpp"
#include "base/process.hpp"
#include "base/side_process.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"

namespace dlock {
namespace {

constexpr std::chrono::seconds longest_call{10};
/// The first byte of the side process's answer.
constexpr char a_password = 'p', an_error = 'e';

struct Pipe {
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw_errno("pipe");
    from = Fd(ends[0]);
    to = Fd(ends[1]);
    fcntl(from.get(), F_SETFL, O_NONBLOCK);
  }
  /// Reads only the text written so far: a process that the command left behind may keep the other
  /// end open.
  std::string written() const {
    std::string text(longest_password + 1, '\0');
    const ssize_t count = read(from.get(), text.data(), text.size());
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    return text;
  }
  Fd from;
  Fd to;
};

std::string failed(const std::string& how) { return an_error + ("the command " + how); }

/// Runs in the side process.
std::string answer(SideCaller& side, const std::string& command) {
  const Pipe out, err;
  const auto status = side.call(command, longest_call, [&] {
    dup2(out.to.get(), STDOUT_FILENO);
    dup2(err.to.get(), STDERR_FILENO);
  });
  std::string said = err.written();
  said.resize(std::min(said.find('\n'), said.size()));
  if (!said.empty()) said = ": " + escaped(said);
  if (!status) return failed("was killed: it ran for more than 10s" + said);
  if (*status != 0) return failed(end_of_call(*status) + said);
  std::string text = out.written();
  if (text.ends_with('\n')) text.pop_back();
  if (text.empty()) return failed("wrote nothing to stdout" + said);
  if (text.size() > longest_password || text.find('\n') != std::string::npos) {
    return failed("wrote more than one line to stdout, the password");
  }
  return a_password + text;
}

void answer_all(SideCaller& side, const std::string& command) {
  dup2(STDOUT_FILENO, STDERR_FILENO);  // no reader of stderr waits for this process to end
  while (side.next()) {
    try {
      side.reply(answer(side, command));
    } catch (const Error& error) {
      side.reply(failed(std::string("was not called: ") + error.what()));
    }
  }
}

/// Runs in dlock: asks the side process.
struct Asker {
  std::string ask(const CallOptions& call_options) {
    const int channel = process.channel.get();
    const bool sent = asked || send(channel, "", 1, MSG_NOSIGNAL) > 0;
    asked = true;
    pollfd fds[] = {{channel, POLLIN, 0}, {call_options.cancel_fd, POLLIN, 0}};
    if (sent && poll_until(fds, call_options.deadline) == 0) throw_usage("the command still runs");
    if (fds[1].revents != 0) throw_interrupted();
    std::string text(longest_password + 1, '\0');
    const ssize_t length = recv(channel, text.data(), text.size(), MSG_DONTWAIT);
    if (length <= 0) throw_usage("the process that runs the command has gone");
    asked = false;
    text.resize(static_cast<std::size_t>(length));
    if (text.front() == an_error) throw_usage(text.substr(1));
    return text.substr(1);
  }

  SideProcess process;
  bool asked = false;
};

}  // namespace

Password::Read password_command(const std::string& command) {
  const auto work = [&](SideCaller& side) { answer_all(side, command); };
  const std::shared_ptr<Asker> asker(new Asker{{keeper_name, work}});
  return [asker](const CallOptions& call_options) { return asker->ask(call_options); };
}

}  // namespace dlock
