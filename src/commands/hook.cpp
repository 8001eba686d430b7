#include "commands/hook.hpp"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/wait.hpp"

namespace dlock {
namespace {

constexpr std::chrono::seconds longest_call{30};
/// Until the other process has seen to all calls.
constexpr std::chrono::seconds longest_finish = 2 * SideCaller::longest_rest;

/// The other process. A message is the facts as `NAME=value`, a NUL behind each.
class HookCaller {
 public:
  HookCaller(const std::string& command, const Log& log) : command_(command), log_(log) {}

  void call(SideCaller& side, const std::string& message) {
    try {
      const auto status = side.call(command_, longest_call, [&] { prepare(message); });
      if (!status) return warn("was stopped: it ran for too long");
      if (*status != 0) warn(end_of_call(*status));
    } catch (const Error& error) {
      warn(std::string("was not called: ") + error.what());
    }
  }

 private:
  static void prepare(const std::string& message) {
    dup2(STDERR_FILENO, STDOUT_FILENO);
    for (std::size_t at = 0; at < message.size();) {
      const std::string fact = message.c_str() + at;
      const auto equals = fact.find('=');
      const std::string name = fact.substr(0, equals);
      const std::string value = fact.substr(equals + 1);
      value.empty() ? unsetenv(name.c_str())                   // NOLINT(concurrency-mt-unsafe)
                    : setenv(name.c_str(), value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
      at += fact.size() + 1;
    }
  }

  void warn(const std::string& what) {
    if (!warned_) log_.warning("warning: the command of --hook " + what);
    warned_ = true;
  }

  const std::string& command_;
  const Log& log_;
  bool warned_ = false;
};

}  // namespace

Hook::Hook(const std::string& command, const Log& log) : log_(log) {
  try {
    process_.emplace("dlock-hook", [&](SideCaller& side) {
      HookCaller caller(command, log);
      while (const auto message = side.next()) caller.call(side, *message);
    });
  } catch (const Error& error) {
    warn(error.what());
  }
}

void Hook::tell(const Facts& facts) {
  if (!process_) return;
  std::string message;
  for (const auto& [name, value] : facts) message.append(name + "=" + value).push_back('\0');
  const auto sent =
      ::send(process_->channel.get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) warn(std::strerror(errno));
}

void Hook::finish(Signals& signals) {
  if (!process_) return;
  const int channel = process_->channel.get();
  shutdown(channel, SHUT_WR);
  const Deadline give_up = later(BootClock::now(), longest_finish);
  // At its end the other process lets go of its end of the channel.
  pollfd fds[] = {{channel, POLLIN, 0}, {signals.fd(), POLLIN, 0}};
  while (poll_until(fds, give_up) > 0 && fds[0].revents == 0) {
    while (const auto event = signals.take()) {
      if (ends_waiting(event->number)) return;
    }
  }
}

void Hook::warn(const std::string& why) {
  if (!warned_) log_.warning("warning: --hook is not called: " + why);
  warned_ = true;
}

}  // namespace dlock
