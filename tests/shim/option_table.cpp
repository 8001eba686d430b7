// Prints the table of the parser, for the tests that compare manual pages and completions with it,
// and for scripts/completions: a line for each command, for each of its options, and for each
// setting without a flag. Tabs separate the columns; "-" means none, and blanks separate the words
// that complete a value.
//
//   command  NAME     HELP     OPERANDS
//   option   COMMAND  --LONG  -X  VALUE  VARIABLE  file  ALIAS  HELP  COMPLETION  WORDS  many
//   setting  NAME     VARIABLE

#include <initializer_list>
#include <iostream>
#include <string>

#include "compat/layout.hpp"
#include "config/option_table.hpp"

namespace {

using dlock::Command;
using dlock::Option;

void print_row(std::initializer_list<std::string> cells) {
  std::string row;
  for (const std::string& cell : cells) {
    row += (row.empty() ? "" : "\t") + (cell.empty() ? "-" : cell);
  }
  std::cout << row << "\n";
}

std::string or_nothing(const char* text) { return text == nullptr ? "" : text; }

const char* name_of(dlock::Operands operands) {
  constexpr const char* names[] = {"none", "command", "keys", "patterns", "verb"};
  return names[static_cast<std::size_t>(operands)];
}

const char* name_of(dlock::Completion completion) {
  constexpr const char* names[] = {"",     "words",   "beginnings", "files",
                                   "keys", "signals", "processes",  "words"};
  return names[static_cast<std::size_t>(completion)];
}

/// The words for a value. A layout with a variable part ends where that part begins.
std::string words_of(const Option& option) {
  if (option.value.completion != dlock::Completion::layouts) return or_nothing(option.value.words);
  std::string words;
  for (const dlock::LayoutRow& row : dlock::layouts()) {
    words += (words.empty() ? "" : " ") + std::string(row.name);
    if (row.part == dlock::LayoutPart::required) words += ":";
  }
  return words;
}

void print_option(const dlock::Subcommand& command, const Option& option) {
  const std::string name(option.name);
  const bool elsewhere = option.has_other_places(command.command);
  print_row({"option", command.name, name.empty() ? "" : "--" + name,
             option.letter == 0 ? "" : std::string("-") + option.letter,
             or_nothing(option.value.name), elsewhere ? or_nothing(option.variable) : "",
             elsewhere && option.has(dlock::in_files) ? "file" : "", option.alias,
             option.help_for(command.command), name_of(option.value.completion), words_of(option),
             option.has(dlock::adds_up) ? "many" : ""});
}

}  // namespace

int main() {
  for (const dlock::Subcommand& command : dlock::subcommands()) {
    print_row({"command", command.name, command.help, name_of(command.operands)});
  }
  for (const dlock::Subcommand& command : dlock::subcommands()) {
    for (const Option& option : dlock::options()) {
      if (option.belongs_to(command.command)) print_option(command, option);
    }
  }
  for (const Option& option : dlock::options()) {
    if (option.commands == 0) print_row({"setting", option.name, or_nothing(option.variable)});
  }
  return std::cout.flush() ? 0 : 1;
}
