#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <exception>
#include <string>
#include <variant>
#include <vector>

#include "base/error.hpp"
#include "base/thread.hpp"
#include "commands/commands.hpp"
#include "commands/commit_name.hpp"
#include "commands/open_store.hpp"
#include "config/command_line.hpp"
#include "config/secrets.hpp"
#include "config/settings.hpp"
#include "output/log.hpp"

namespace dlock {
namespace {

int answer(const std::string& text) {
  print(text);
  return 0;
}

/// Blocks SIGPIPE while it writes, so that a stderr without a reader does not end dlock. The
/// disposition of the signal stays unchanged, because COMMAND inherits it.
void warn(const ServerSettings& settings, const Log& log) {
  const PipeSignalHeld held;
  if (!log.quiet()) {
    for (const std::string& warning : settings.warnings) log.warning("warning: " + warning);
  }
  if (settings.server_is_default) {
    log.warning(
        "no server configured: locking only this user's jobs on this host; "
        "set DLOCK_SERVER, or --server local: if that is meant");
  }
  const std::string source = server_source_text(settings);
  if (!source.empty()) log.detail("server from " + source);
}

template <typename Why>
int failed(const Log& log, const Why& why, ExitCode code) {
  const PipeSignalHeld held;
  log.error(why);
  return static_cast<int>(code);
}

constexpr auto keys_of = [](const auto& settings) -> std::vector<LockKey> {
  if constexpr (requires { settings.keys; }) return settings.keys;
  if constexpr (requires { settings.key; }) return {settings.key};
  return {};
};

int carry_out_any(const Settings& any, Command command) {
  const ServerSettings& settings =
      *std::visit([](const ServerSettings& each) { return &each; }, any);
  const Log log(settings.quiet, settings.verbose, std::visit(keys_of, any), settings.server_place);
  // Some commands set signals themselves. In the others a write beyond the file size limit must
  // fail, and must not end dlock by a signal.
  const bool sets_signals = command == Command::run || command == Command::acquire ||
                            command == Command::release || command == Command::guard;
  if (!sets_signals) std::signal(SIGXFSZ, SIG_IGN);
  // A pipe without a reader must not end dlock either: a waiter of `local:` may die just before
  // dlock writes to its FIFO, and stdout may be closed after the first of several keys. Commands
  // that only read die of SIGPIPE, as a filter does.
  const bool only_reads = command == Command::inspect || command == Command::doctor;
  if (!sets_signals && !only_reads) std::signal(SIGPIPE, SIG_IGN);
  warn(settings, log);
  try {
    return std::visit([&](const auto& each) { return carry_out(each, log); }, any);
  } catch (const Error& error) {
    return failed(log, error, exit_code(error.kind()));
  }
}

/// Opens /dev/null in place of a closed stdin, stdout or stderr. Otherwise a socket or lock file
/// would get that number, and messages would be written into it. It is read-only, and COMMAND does
/// not inherit it.
void occupy_standard_fds() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) < 0) open("/dev/null", O_RDONLY | O_CLOEXEC);
  }
}

Settings settings_of(const CommandLine& line) {
  try {
    return resolve(line, std::getenv);
  } catch (const Error& error) {
    if (line.command == Command::run) report_unusable_settings(line, error);
    throw;
  }
}

int run_dlock(const std::vector<std::string>& arguments) {
  const CommandLine line = parse_command_line(arguments);
  if (line.help) return answer(help_text(line.command));
  if (line.version) return answer(version_text(commit_name));
  if (!line.command) {
    write_all(STDERR_FILENO, help_text(std::nullopt));
    return static_cast<int>(ExitCode::usage);
  }
  return carry_out_any(settings_of(line), *line.command);
}

}  // namespace
}  // namespace dlock

/// std::terminate() calls this for an exception that nothing catches. libstdc++'s own handler
/// prints the name of the exception's type, and its demangler would be 3 % of the static binary.
void __gnu_cxx::__verbose_terminate_handler() {
  dlock::write_all(STDERR_FILENO, "dlock: bug: an exception was not caught\n");
  std::abort();
}

int main(int argc, char** argv) {
  dlock::occupy_standard_fds();
  const dlock::Log log(false, false);
  try {
    const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
    dlock::scrub_secrets(argc, argv);
    return dlock::run_dlock(arguments);
  } catch (const dlock::Error& error) {
    return dlock::failed(log, error.what(), dlock::exit_code(error.kind()));
  } catch (const std::bad_alloc&) {
    return dlock::failed(log, "out of memory", dlock::ExitCode::host_refused);
  } catch (const std::exception& error) {
    return dlock::failed(log, std::string("bug: ") + error.what(), dlock::ExitCode::bug);
  }
}
