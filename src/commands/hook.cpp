#include "commands/hook.hpp"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "output/sentences.hpp"

namespace dlock {
namespace {

constexpr std::chrono::seconds longest_call{30};
/// How long dlock waits for the side process to make all its calls.
constexpr std::chrono::seconds longest_finish = 2 * SideCaller::longest_rest;

/// Sets the variables of a message: a list of `NAME=value`, each followed by a NUL. An empty value
/// removes the variable.
void set_variables(const std::string& message) {
  for (std::string_view rest = message; !rest.empty();) {
    std::string_view fact = take_until(rest, '\0');
    const std::string name(take_until(fact, '='));
    const std::string value(fact);
    value.empty() ? unsetenv(name.c_str())                   // NOLINT(concurrency-mt-unsafe)
                  : setenv(name.c_str(), value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
  }
}

/// Calls the command of --hook, in the side process. Returns what failed; empty if nothing did.
std::string call_once(SideCaller& side, const std::string& command, const std::string& message) {
  try {
    const auto status = side.call(command, longest_call, [&] {
      dup2(STDERR_FILENO, STDOUT_FILENO);
      set_variables(message);
    });
    if (!status) return "was stopped: it ran for too long";
    return *status == 0 ? "" : end_of_call(*status);
  } catch (const Error& error) {
    return std::string("was not called: ") + error.what();
  }
}

}  // namespace

HookCall error_call(const std::vector<LockKey>& keys, const Error& error) {
  return {.event = "error",
          .keys = key_list(keys),
          .reason = error.what(),
          .exit_code = std::to_string(static_cast<int>(exit_code(error.kind())))};
}

std::string key_list(const std::vector<LockKey>& keys) {
  return joined(keys, "\n", [](const LockKey& key) { return key.text; });
}

std::string first_holder(const Refusal& refusal) {
  if (refusal.held_by.empty()) return "";
  const Holder& first = refusal.held_by.front();
  return first.kept ? "" : client_text(first);
}

Hook::Hook(const std::optional<std::string>& command, const Log& log) : log_(log) {
  if (!command) return;
  try {
    process_.emplace("dlock-hook", [&](SideCaller& side) {
      bool warned = false;
      while (const auto message = side.next()) {
        const std::string fault = call_once(side, *command, *message);
        if (fault.empty() || std::exchange(warned, true)) continue;
        log.warning("warning: the command of --hook " + fault);
      }
    });
  } catch (const Error& error) {
    warn(error.what());
  }
}

void Hook::call(const HookCall& facts) {
  if (!process_) return;
  const std::pair<const char*, std::string> variables[] = {
      {"EVENT", facts.event},   {"KEY", facts.keys},      {"FENCE", facts.fences},
      {"HOLDER", facts.holder}, {"REASON", facts.reason}, {"EXIT_CODE", facts.exit_code},
      {"WHERE", where_}};
  std::string message;
  for (const auto& [name, value] : variables) {
    message.append("DLOCK_").append(name).append("=" + value).push_back('\0');
  }
  const auto sent =
      send(process_->channel.get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) warn(std::strerror(errno));
}

void Hook::finish(Signals* signals) {
  if (!process_) return;
  const int channel = process_->channel.get();
  shutdown(channel, SHUT_WR);
  const Deadline give_up = later(BootClock::now(), longest_finish);
  // The side process closes its end of the channel when it ends.
  pollfd fds[] = {{channel, POLLIN, 0}, {signals ? signals->fd() : -1, POLLIN, 0}};
  while (poll_until(fds, give_up) > 0 && fds[0].revents == 0) {
    while (const auto event = signals ? signals->take() : std::nullopt) {
      if (ends_waiting(event->number)) return;
    }
  }
}

void Hook::warn(const std::string& why) {
  if (!warned_) log_.warning("warning: --hook is not called: " + why);
  warned_ = true;
}

}  // namespace dlock
