// Prints what the parser knows, for the tests that compare manual pages and completions with it: a
// line for each command, for each option of it, and for each setting that is no flag. Columns are
// parted by tabs; "-" stands for nothing, and "," parts the aliases.
//
//   command  NAME     HELP
//   option   COMMAND  --LONG  -X  VALUE  VARIABLE  file  ALIASES  HELP
//   setting  NAME     VARIABLE

#include <initializer_list>
#include <iostream>
#include <string>

#include "config/options.hpp"

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

void print_option(const dlock::Subcommand& command, const Option& option) {
  const std::string name(option.name);
  const bool flag_alone = (option.flag_alone & dlock::only(command.command)) != 0;
  std::string aliases;
  for (const std::string& alias : dlock::aliases_of(option)) {
    aliases += (aliases.empty() ? "" : ",") + alias;
  }
  print_row({"option", command.name, name.empty() ? "" : "--" + name,
             option.letter == 0 ? "" : std::string("-") + option.letter, or_nothing(option.value),
             flag_alone ? "" : or_nothing(option.variable),
             option.in_file && !flag_alone ? "file" : "", aliases, option.help});
}

}  // namespace

int main() {
  for (const dlock::Subcommand& command : dlock::subcommands()) {
    print_row({"command", command.name, command.help});
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
