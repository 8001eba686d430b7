#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/options.hpp"

namespace dlock {

/// One option as it was given, pointing at its row of the table.
struct GivenOption {
  const Option* option;
  std::string value;  ///< empty if the option takes none
};

/// The command line as it was typed: strings, not yet looked at. parse_command_line makes it, and
/// resolve() makes the settings of it.
struct CommandLine {
  std::optional<Command> command;  ///< nothing only with help or version, or if `dlock` stood alone
  bool help = false;               ///< print help_text(command) on stdout, exit 0
  bool version = false;            ///< print the version on stdout, exit 0
  /// In the user's order, operands that are keys among them as if after -k. Of those that replace
  /// each other (twice the same; -n and -w; -s, -x and --limit) only the last.
  std::vector<GivenOption> given;
  /// The operands that are no keys: COMMAND and its ARGs as they are, patterns, or a verb.
  std::vector<std::string> operands;

  /// These take the long name of an option, or its letter if it has none (`q`).
  bool has(std::string_view name) const;
  std::optional<std::string> value(std::string_view name) const;
  std::vector<std::string> values(std::string_view name) const;
};

/// Reads the arguments behind the program's name. COMMAND of `run` and `guard` is cut off at the
/// first operand or at `--` and never looked at. `-h` and `-V` end the reading. No arguments at
/// all: a CommandLine with neither command nor help, for which main prints the help on stderr and
/// exits 64. Throws Error{usage}, which never shows a password.
CommandLine parse_command_line(const std::vector<std::string>& arguments);

}  // namespace dlock
