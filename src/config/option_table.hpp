#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dlock {

/// The commands, in the order of the help and of Settings.
enum class Command { run, acquire, renew, release, inspect, latch, doctor, guard };

/// The set of commands that an option belongs to.
using Commands = unsigned;
constexpr Commands only(Command command) { return 1U << static_cast<unsigned>(command); }

/// The meaning of a command's arguments that belong to no option.
enum class Operands : char {
  none,
  command,   ///< COMMAND and its ARGs, which are not parsed
  keys,      ///< keys, as if after -k
  patterns,  ///< the same, except that names with `*`, `?` or `[` are patterns
  verb,      ///< first a verb, then keys
};

struct Subcommand {
  Command command;
  char name[8];
  const char* help;
  Operands operands;
};

/// All commands, in the order of Command.
std::span<const Subcommand> subcommands();
const Subcommand& subcommand(Command command);

/// The completions that a shell offers for a value; tests/shim/option_table.cpp names them for
/// scripts/completions.
enum class Completion : char {
  nothing,
  words,       ///< the words in `words`
  beginnings,  ///< the same, but none of them is a complete value
  files,
  keys,  ///< the keys of existing locks
  signals,
  processes,
  layouts,  ///< the names in layouts()
};

/// A description of an option's value, for the help and the completions.
struct OptionValue {
  const char* name;  ///< its name in the help; nullptr if there is no value
  Completion completion;
  const char* words;  ///< separated by blanks, or nullptr

  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr OptionValue(const char* text, Completion by = Completion::nothing,
                        const char* list = nullptr)
      : name(text), completion(by), words(list) {}
};

/// Traits that only some options have.
enum OptionTraits : unsigned {
  in_files = 1,      ///< it may be set in a configuration file
  adds_up = 2,       ///< all of its values count, not only the last
  may_be_empty = 4,  ///< an empty value, e.g. from an unset variable, counts as none
  rare = 8,          ///< the help lists it together with others on one line
  one_wait = 16,     ///< of the options with this trait the last one wins
  one_limit = 32,    ///< likewise: the last one of the options with this trait wins
};

/// One option. Only this row says how it is spelled, which commands have it, where else its value
/// may be set, and how a shell completes it. The parser, the suggestions, the settings, the help
/// and the completions read it. The text arrays inside the row need no relocation at start-up.
struct Option {
  char name[23];  ///< long name without dashes; empty if there is only a letter
  char letter;    ///< 0: none
  OptionValue value;
  Commands commands;
  const char* help;
  const char* variable = nullptr;  ///< its environment variable
  unsigned traits = 0;             ///< a set of OptionTraits
  Commands flag_alone = 0;         ///< commands for which it has neither variable nor file
  char alias[5] = "";              ///< another spelling: `-e`, `--nb`

  bool takes_value() const { return value.name != nullptr; }
  bool has(OptionTraits trait) const { return (traits & trait) != 0; }
  bool belongs_to(Command command) const { return (commands & only(command)) != 0; }
  /// Whether `command` also reads its value from the variable and the files.
  bool has_other_places(Command command) const { return (flag_alone & only(command)) == 0; }
  /// Whether `text` is its long name or, if it has none, its letter.
  bool is(std::string_view text) const {
    return *name == '\0' ? text == std::string_view(&letter, 1) : text == name;
  }
  /// Its name in messages: `--wait`, or `-q` if it has no long name.
  std::string shown() const;
  /// Its help, in the wording for `command` if that differs.
  const char* help_for(Command command) const;
};

/// The names of two options that exclude each other.
struct Exclusion {
  const char* one;
  const char* other;
};
std::span<const Exclusion> exclusions();

/// All options, the most common first.
std::span<const Option> options();

/// Returns the option spelled `--NAME` or `-X`, or by an alias; nullptr if there is none. If two
/// options have the same name, it returns the one of `command`.
const Option* find_option(std::string_view spelled, Command command);

/// Returns the option with this long name, or with this letter if it has none; it must exist.
const Option& option(std::string_view name);

/// The help of one command, or of dlock itself, in whole lines of at most 80 columns.
std::string help_text(std::optional<Command> command);

/// The output of `dlock --version` in whole lines: `dlock VERSION` on a line of its own, for
/// scripts; the commit, unless empty; the linked libraries with their versions; and the libraries
/// that a run loads when needed.
std::string version_text(std::string_view commit);

}  // namespace dlock
