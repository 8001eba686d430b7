#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/flags.hpp"

namespace dlock {

/// Which commands an option belongs to: a set of Command.
using Commands = unsigned;
constexpr Commands only(Command command) { return 1U << static_cast<unsigned>(command); }

struct Subcommand {
  Command command;
  const char* name;
  const char* help;
};

/// Every command, in the order of the help.
std::span<const Subcommand> subcommands();
const Subcommand& subcommand(Command command);

/// Where an option's value goes in Flags; nothing for a setting that only a file or a variable has.
using Slot = std::variant<std::monostate, bool Flags::*, std::optional<std::string> Flags::*,
                          std::vector<std::string> Flags::*>;

/// One option: the only place that says how it is written, what it fills, who has it, and where
/// else its value may stand. The cutter, the suggestions, the settings and the help read it.
struct Option {
  const char* name;   ///< long name without dashes; empty if there is only the letter
  char letter;        ///< 0: none
  const char* value;  ///< what the help calls its value; nullptr if it takes none
  Commands commands;
  Slot slot;
  const char* help;                ///< empty: few need it, and it stands with others in a line
  const char* variable = nullptr;  ///< the environment variable behind it
  bool in_file = false;            ///< whether it may stand in a configuration file
  char one_of = 0;                 ///< of the options with the same mark the later wins
  Commands flag_alone = 0;         ///< who has it of the flag alone, not of variable and file
  bool may_be_empty = false;       ///< an empty value, such as an unset variable's, is none

  bool belongs_to(Command command) const { return (commands & only(command)) != 0; }
  /// As people are told it: `--wait`, or `-q` where there is no long name.
  std::string shown() const;
};

/// All options, the commonest first.
std::span<const Option> options();

/// The option behind `--NAME` or its alias, or behind a letter; nullptr if there is none.
const Option* find_option(std::string_view name);
/// The same; of two options of that name the one that `command` has.
const Option* find_option(std::string_view name, Command command);
const Option* find_option(char letter);

/// The option of this long name, which must be one.
const Option& option(std::string_view name);

/// Other spellings of `option`: `-e`, `--nb`.
std::vector<std::string> aliases_of(const Option& option);

}  // namespace dlock
