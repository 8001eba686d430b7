#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dlock {

/// In the order of the help, and of Settings.
enum class Command { run, acquire, renew, release, inspect, latch, doctor, guard };

/// Which commands an option belongs to: a set of Command.
using Commands = unsigned;
constexpr Commands only(Command command) { return 1U << static_cast<unsigned>(command); }

/// What the arguments of a command are that belong to no option.
enum class Operands : char {
  none,
  command,   ///< COMMAND and its ARGs, which are never looked at
  keys,      ///< keys, as if after -k
  patterns,  ///< the same; those with `*`, `?` or `[` are patterns
  verb,      ///< the first is a verb, the others are keys
};

struct Subcommand {
  Command command;
  char name[8];
  const char* help;
  Operands operands;
};

/// Every command, in the order of Command.
std::span<const Subcommand> subcommands();
const Subcommand& subcommand(Command command);

/// What a shell offers for a value; tests/shim/option_table.cpp names them for scripts/completions.
enum class Completion : char {
  nothing,
  words,       ///< those of `words`
  beginnings,  ///< the same, and none of them is a whole value
  files,
  keys,  ///< of the locks that are there
  signals,
  processes,
  layouts,  ///< the names of layouts()
};

/// What stands after an option.
struct OptionValue {
  const char* name;  ///< what the help calls it; nullptr if there is none
  Completion completion;
  const char* words;  ///< parted by blanks, or nullptr

  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr OptionValue(const char* text, Completion by = Completion::nothing,
                        const char* list = nullptr)
      : name(text), completion(by), words(list) {}
};

/// What only some options have: a set of these.
enum OptionTraits : unsigned {
  in_files = 1,      ///< it may stand in a configuration file
  adds_up = 2,       ///< all of its values count, and not only the last
  may_be_empty = 4,  ///< an empty value, such as an unset variable's, is none
  rare = 8,          ///< the help names it in a line with others
  one_wait = 16,     ///< of the options with this mark the later wins
  one_limit = 32,    ///< the same
};

/// One option: the only place that says how it is written, which commands have it, where else its
/// value may stand, and how a shell completes it. The parser, the suggestions, the settings, the
/// help and the completions read it. A text within the row is nothing to relocate at the start.
struct Option {
  char name[23];  ///< long name without dashes; empty if there is only the letter
  char letter;    ///< 0: none
  OptionValue value;
  Commands commands;
  const char* help;
  const char* variable = nullptr;  ///< the environment variable behind it
  unsigned traits = 0;             ///< a set of OptionTraits
  Commands flag_alone = 0;         ///< who has only the flag, and neither variable nor file

  bool takes_value() const { return value.name != nullptr; }
  bool has(OptionTraits trait) const { return (traits & trait) != 0; }
  bool belongs_to(Command command) const { return (commands & only(command)) != 0; }
  /// Whether `command` reads its value from the variable and the files, too.
  bool has_other_places(Command command) const { return (flag_alone & only(command)) == 0; }
  /// Whether this is its long name or, as it has none, its letter.
  bool is(std::string_view text) const {
    return *name == '\0' ? text == std::string_view(&letter, 1) : text == name;
  }
  /// As people are told it: `--wait`, or `-q` where there is no long name.
  std::string shown() const;
  /// Its help, or what `command` means by it if that is something else.
  const char* help_for(Command command) const;
};

/// All options, the commonest first.
std::span<const Option> options();

/// The option spelled `--NAME` or `-X`, or by an alias; nullptr if there is none. Of two options of
/// one name it is the one that `command` has.
const Option* find_option(std::string_view spelled, std::optional<Command> command = std::nullopt);

/// The option of this long name, or of this letter if it has none, which must be one.
const Option& option(std::string_view name);

/// Other spellings of `option`: `-e`, `--nb`.
std::vector<std::string_view> aliases_of(const Option& option);

}  // namespace dlock
