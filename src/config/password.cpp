#include "config/password.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

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

/// Runs in the side process. Throws Error with the reason if there is no password.
std::string answer(SideCaller& side, const std::string& command) {
  const Pipe out, err;
  const auto status = side.call(command, longest_call, [&] {
    dup2(out.to.get(), STDOUT_FILENO);
    dup2(err.to.get(), STDERR_FILENO);
  });
  std::string said = err.written();
  said.resize(std::min(said.find('\n'), said.size()));
  if (!said.empty()) said = ": " + escaped(said);
  if (!status) throw_usage("the command was killed: it ran for more than 10s" + said);
  if (*status != 0) throw_usage("the command " + end_of_call(*status) + said);
  std::string text = out.written();
  if (text.ends_with('\n')) text.pop_back();
  if (text.empty()) throw_usage("the command wrote nothing to stdout" + said);
  if (text.size() > longest_password || text.find('\n') != std::string::npos) {
    throw_usage("the command wrote more than one line to stdout, the password");
  }
  return a_password + text;
}

void answer_all(SideCaller& side, const std::string& command) {
  dup2(STDOUT_FILENO, STDERR_FILENO);  // no reader of stderr waits for this process to end
  while (side.next()) {
    try {
      side.reply(answer(side, command));
    } catch (const Error& error) {
      side.reply(an_error + std::string(error.what()));
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

/// A reader of passwords that expire: it runs `command` with /bin/sh, in a SideProcess, and returns
/// the line that the command writes. Throws Error{usage} if the command writes no line within ten
/// seconds. If the caller's deadline comes first, the command runs on, and the next call returns
/// its line.
Password::Read password_command(const std::string& command) {
  const auto work = [&](SideCaller& side) { answer_all(side, command); };
  const std::shared_ptr<Asker> asker(new Asker{{keeper_name, work}});
  return [asker](const CallOptions& call_options) { return asker->ask(call_options); };
}

/// Wraps `read` so that its errors name the source of `given`.
Password::Read reader_of(const SourcedValue& given, Password::Read read) {
  return [given, read = std::move(read)](const CallOptions& call_options) {
    try {
      return read(call_options);
    } catch (const Error& fault) {
      if (fault.kind() == ErrorKind::interrupted) throw;
      given.refuse(fault.what());
    }
  };
}

std::string read_password(const std::string& path) {
  std::string content = read_whole(path, longest_password);
  if (content.ends_with('\n')) content.pop_back();
  if (content.empty()) throw_usage("the password in " + escaped(path) + " is empty");
  return content;
}

}  // namespace

Password password_in(const SourcedValue& file, ServerSettings& settings) {
  std::error_code error;
  std::string path = std::filesystem::absolute(path_from(file), error).string();
  const bool once = path.starts_with("/dev/") || path.starts_with("/proc/") ||
                    !std::filesystem::is_regular_file(path, error);
  if (once) path = file.text;
  const auto read = reader_of(file, [path](const CallOptions&) { return read_password(path); });
  Password password = once ? Password(read({})) : Password(read);
  warn_if_exposed(file.text, "a password", settings.warnings);
  return password;
}

std::optional<Password> configured_password(const Sources& sources, ServerSettings& settings) {
  const auto files = sources.of("password-file");
  const auto commands = sources.of("password-command");
  auto values = sources.of("password");
  auto& in_variable = values[1];
  if (in_variable.empty() && is_redis(settings.server)) {
    in_variable = sources.in_variable("REDISCLI_AUTH");
  }
  for (std::size_t place = 0; place < values.size(); ++place) {
    const auto &file = files[place], &command = commands[place], &value = values[place];
    if (!file.empty() && !command.empty()) {
      command.front().refuse("excludes " + file.front().place);
    }
    if (!file.empty()) return password_in(file.front(), settings);
    if (!command.empty()) {
      return Password(reader_of(command.front(), password_command(command.front().text)));
    }
    if (!value.empty()) return value.front().text;
  }
  return std::nullopt;
}

}  // namespace dlock
