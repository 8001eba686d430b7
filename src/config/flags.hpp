#pragma once

#include <optional>
#include <string>
#include <vector>

namespace dlock {

enum class Command { run, acquire, renew, release, inspect, doctor, guard, latch };

/// The command line as it was typed: strings, not yet looked at. Made by parse_command_line and
/// read by resolve() alone; the table of options (config/options.hpp) says which flag fills what.
struct Flags {
  std::optional<Command> command;  ///< nothing only with help or version, or if `dlock` stood alone
  bool help = false;               ///< print help_text(command) on stdout, exit 0
  bool version = false;            ///< print the version on stdout, exit 0

  std::optional<std::string> verb;        ///< latch: the first operand
  std::vector<std::string> keys;          ///< after -k, or operands; in the user's order
  std::vector<std::string> patterns;      ///< inspect, release: operands with `*`, `?` or `[`
  std::vector<std::string> command_argv;  ///< run, guard: COMMAND and its ARGs, as they are
  std::vector<std::string> servers;
  std::vector<std::string> layouts;  ///< after --compat: at most one is right

  // Of -n and -w, and of -s, -x and --limit, the later alone is set.
  bool nonblock = false;
  bool latest = false;
  std::optional<std::string> wait;
  bool shared = false;
  bool exclusive = false;
  std::optional<std::string> limit;

  std::optional<std::string> ttl, owner, label, attach;
  std::optional<std::string> command_string, conflict_exit_code, grace, signal;
  std::optional<std::string> max_hold, min_hold, on_lost, status_fd, metrics_file, hook;
  std::optional<std::string> token, fence, reason, state, state_key;
  std::optional<std::string> count, by;
  std::optional<std::string> prefix, password_file, config, replicas;
  std::optional<std::string> tls_ca, tls_cert, tls_key, tls_server_name;
  std::optional<std::string> sentinel_user, sentinel_password_file;
  bool wait_tree = false;
  bool force = false;
  bool json = false;
  bool metrics = false;
  bool all_kinds = false;
  bool env = false;
  bool watchdog = false;
  bool acl = false;
  bool schema = false;
  bool watch = false;
  bool quiet = false;
  bool verbose = false;
};

/// Reads the arguments behind the program's name. COMMAND of `run` and `guard` is cut off at the
/// first operand or at `--` and never looked at. `-h` and `-V` end the reading. No arguments at
/// all: Flags with neither command nor help, for which main prints the help on stderr and exits 64.
/// Throws Error{usage}, which never shows a password.
Flags parse_command_line(const std::vector<std::string>& arguments);

}  // namespace dlock
