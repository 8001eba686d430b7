#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/option_table.hpp"

namespace dlock {

/// One option of the command line, and its row in the table.
struct GivenOption {
  const Option* option;
  std::string value;  ///< empty if the option takes none
};

/// The command line as typed: strings that are not checked yet. parse_command_line() makes it, and
/// resolve() turns it into settings.
struct CommandLine {
  std::optional<Command> command;  ///< nothing with help or version, or without arguments
  bool help = false;               ///< print help_text(command) on stdout, exit 0
  bool version = false;            ///< print the version on stdout, exit 0
  /// In the user's order; operands that are keys are listed as if after -k. Among options that
  /// replace each other (the same one twice; -n and -w; -s, -x and --limit) only the last is kept.
  std::vector<GivenOption> given;
  /// The operands that are not keys: COMMAND and its ARGs unchanged, patterns, or a verb.
  std::vector<std::string> operands;

  /// `name` is the long name of an option, or its letter if it has none (`q`).
  bool has(std::string_view name) const;
  std::optional<std::string> value(std::string_view name) const;
  std::vector<std::string> values(std::string_view name) const;
};

/// Parses the arguments after the program's name. COMMAND of `run` and `guard` begins at the first
/// operand or at `--` and is not parsed. `-h` and `-V` end the parsing. Without arguments it
/// returns neither command nor help, and main prints the help on stderr and exits 64. Throws
/// Error{usage}, which never shows a password.
CommandLine parse_command_line(const std::vector<std::string>& arguments);

/// Returns `: did you mean X?` with the candidate nearest to `text`, for the end of a message;
/// empty if none is near. Near means at most one edit for every three characters (insert, delete or
/// change one, or swap two neighbours: https://en.wikipedia.org/wiki/Damerau-Levenshtein_distance,
/// the optimal string alignment form), or that the candidate begins with `text`.
std::string did_you_mean(std::string_view text, const std::vector<std::string>& candidates);

}  // namespace dlock
