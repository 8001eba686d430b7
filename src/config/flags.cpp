#include "config/flags.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "config/foreign_spellings.hpp"
#include "config/options.hpp"
#include "config/redaction.hpp"
#include "config/suggestion.hpp"

namespace dlock {
namespace {

/// One flag as it was given.
struct GivenFlag {
  const Option* option;
  std::optional<std::string> value;
};

/// Puts its value where the table says.
struct Filling {
  Flags& flags;
  const std::optional<std::string>& value;

  void operator()(std::monostate) const {}
  void operator()(bool Flags::*slot) const { flags.*slot = true; }
  void operator()(std::optional<std::string> Flags::*slot) const { flags.*slot = value; }
  void operator()(std::vector<std::string> Flags::*slot) const {
    (flags.*slot).push_back(value.value());
  }
};

std::vector<std::string> flags_of(Command command) {
  std::vector<std::string> names;
  for (const Option& each : options()) {
    if (each.belongs_to(command)) names.push_back(each.shown());
  }
  return names;
}

std::string commands_with(const Option& option) {
  std::string names;
  for (const Subcommand& each : subcommands()) {
    const Option* there = *option.name == '\0' ? &option : find_option(option.name, each.command);
    if (there->belongs_to(each.command))
      names += (names.empty() ? "" : ", ") + std::string(each.name);
  }
  return names;
}

/// Cuts the arguments of one command into flags, operands and COMMAND, by the table of options.
class ArgParser {
 public:
  ArgParser(const std::vector<std::string>& arguments, Flags& flags)
      : arguments_(arguments), flags_(flags), command_(*flags.command) {}

  /// Nothing but `help` or `version` is set once that was asked for.
  void cut() {
    while (next_ < arguments_.size()) {
      const std::string& argument = arguments_[next_];
      if (argument == "--") {
        ++next_;
        take_operands();
      } else if (argument.size() < 2 || argument[0] != '-') {
        take_operand();
      } else if (argument[1] == '-') {
        take_long();
      } else {
        take_cluster();
      }
      if (flags_.help || flags_.version) return;
    }
    for (const GivenFlag& each : given_) {
      std::visit(Filling{flags_, each.value}, each.option->slot);
    }
  }

 private:
  bool takes_command() const { return option("command").belongs_to(command_); }

  bool takes_patterns() const {
    return command_ == Command::inspect || command_ == Command::release;
  }

  void take_operands() {
    if (takes_command()) {
      const auto from = arguments_.begin() + static_cast<std::ptrdiff_t>(next_);
      flags_.command_argv.assign(from, arguments_.end());
      next_ = arguments_.size();
    }
    while (next_ < arguments_.size()) take_operand();
  }

  void take_operand() {
    if (takes_command()) return take_operands();
    const std::string& operand = arguments_[next_++];
    if (command_ == Command::latch && !flags_.verb) {
      flags_.verb = operand;
    } else if (takes_patterns() && operand.find_first_of("*?[") != std::string::npos) {
      flags_.patterns.push_back(operand);
    } else if (option("key").belongs_to(command_)) {
      add(option("key"), operand);
    } else {
      throw_usage(std::string(subcommand(command_).name) +
                  " takes no operand: " + in_quotes(operand));
    }
  }

  void take_long() {
    const std::string& argument = arguments_[next_++];
    const auto equals = argument.find('=');
    const std::string spelled = argument.substr(0, equals);
    const Option& found = known(find_option(spelled.substr(2), command_), spelled, "");
    if (equals != std::string::npos) {
      add(found, argument.substr(equals + 1));
    } else {
      add(found, found.value == nullptr ? std::nullopt : value_behind(found));
    }
  }

  /// `-nkKEY`: letters without a value, then at most one with it.
  void take_cluster() {
    const std::string& cluster = arguments_[next_++];
    for (std::size_t i = 1; i < cluster.size(); ++i) {
      const std::string where = cluster.size() > 2 ? " in " + redacted(cluster) : "";
      const std::string spelled = std::string("-") + cluster[i];
      const Option& found = known(find_option(cluster[i]), spelled, where);
      if (found.value != nullptr) {
        return add(found, i + 1 < cluster.size() ? cluster.substr(i + 1) : value_behind(found));
      }
      add(found, std::nullopt);
    }
  }

  std::optional<std::string> value_behind(const Option& option) {
    if (next_ == arguments_.size()) {
      throw_usage(option.shown() + " needs a value: " + option.shown() + " " + option.value);
    }
    return arguments_[next_++];
  }

  const Option& known(const Option* found, const std::string& spelled, const std::string& where) {
    if (const auto instead = refusal_of(spelled)) {
      throw_usage(spelled + " is a flag of flock, not of dlock: " + *instead);
    }
    if (found == nullptr) {
      throw_usage("unknown flag " + redacted(spelled) + where + suggestion_for(spelled));
    }
    if (!found->belongs_to(command_)) {
      throw_usage(spelled + " is not a flag of " + subcommand(command_).name + ", but of " +
                  commands_with(*found));
    }
    return *found;
  }

  std::string suggestion_for(const std::string& spelled) const {
    const std::string_view meant = option_meant(spelled);
    if (!meant.empty() && option(meant).belongs_to(command_)) {
      return ": did you mean " + option(meant).shown() + "?";
    }
    return did_you_mean(spelled, flags_of(command_));
  }

  void add(const Option& option, std::optional<std::string> value) {
    if (option.value == nullptr && value) throw_usage(option.shown() + " takes no value");
    // What a failed acquire has printed.
    const bool token_to_release =
        command_ == Command::release && option.slot == Slot(&Flags::token);
    if (value && value->empty() && !option.may_be_empty && !token_to_release) {
      throw_usage(option.shown() + ": the value is empty");
    }
    const bool adds_up = std::holds_alternative<std::vector<std::string> Flags::*>(option.slot);
    if (!adds_up) {
      std::erase_if(given_, [&](const GivenFlag& earlier) {
        const bool same_choice = option.one_of != 0 && earlier.option->one_of == option.one_of;
        return earlier.option == &option || same_choice;
      });
    }
    given_.push_back({&option, std::move(value)});
    if (option.slot == Slot(&Flags::help)) flags_.help = true;
    if (option.slot == Slot(&Flags::version)) flags_.version = true;
  }

  const std::vector<std::string>& arguments_;
  Flags& flags_;
  const Command command_;
  std::size_t next_ = 1;  // behind the command's name
  std::vector<GivenFlag> given_;
};

std::string where_it_belongs(const Option* option) {
  const Subcommand* first = nullptr;
  for (const Subcommand& each : subcommands()) {
    if (first == nullptr && option != nullptr && option->belongs_to(each.command)) first = &each;
  }
  const bool of_run = first == nullptr || first->command == Command::run;
  std::string line = of_run ? "dlock run -k KEY" : std::string("dlock ") + first->name;
  if (first != nullptr && option->slot != Slot(&Flags::keys)) {
    line +=
        " " + option->shown() + (option->value == nullptr ? "" : " " + std::string(option->value));
  }
  return ": options come after it, as in " + line + (of_run ? " -- COMMAND" : "");
}

Flags before_command(const std::string& argument) {
  Flags flags;
  const std::string spelled = argument.substr(0, argument.find('='));
  const bool is_long = spelled.starts_with("--");
  const Option* option = nullptr;
  if (is_long) {
    option = find_option(std::string_view(spelled).substr(2));
  } else if (spelled.size() > 1) {
    option = find_option(spelled[1]);
  }
  const bool alone = is_long ? spelled == argument : argument.size() == 2;
  if (alone && option != nullptr && option->slot == Slot(&Flags::help)) {
    flags.help = true;
  } else if (alone && option != nullptr && option->slot == Slot(&Flags::version)) {
    flags.version = true;
  } else {
    if (const auto instead = refusal_of(spelled)) {
      throw_usage(spelled + " is a flag of flock, not of dlock: " + *instead);
    }
    throw_usage(redacted(spelled) + " comes before the command of dlock" +
                where_it_belongs(option));
  }
  return flags;
}

[[noreturn]] void refuse_command(const std::string& name) {
  const std::string begin = "unknown command " + in_quotes(name);
  if (const auto meant = command_meant(name); !meant.empty()) {
    throw_usage(begin + ": did you mean " + std::string(meant) + "?");
  }
  // As flock is given the file to lock.
  if (name.find('/') != std::string::npos) {
    throw_usage(begin + ": a command runs under a lock with dlock run -k KEY -- COMMAND");
  }
  std::vector<std::string> names;
  std::string list;
  for (const Subcommand& each : subcommands()) {
    const bool last = each.command == subcommands().back().command;
    list += std::string(list.empty() ? "" : last ? " or " : ", ") + each.name;
    names.emplace_back(each.name);
  }
  const std::string suggestion = did_you_mean(name, names);
  throw_usage(begin + (suggestion.empty() ? ": it is " + list : suggestion));
}

Command command_named(const std::string& name) {
  for (const Subcommand& each : subcommands()) {
    if (name == each.name) return each.command;
  }
  refuse_command(name);
}

/// `dlock help` and `dlock help COMMAND`.
Flags help_wanted(const std::vector<std::string>& arguments) {
  Flags flags;
  flags.help = true;
  if (arguments.size() > 2) throw_usage("help takes one command: dlock help COMMAND");
  const std::string about = arguments.size() == 2 ? arguments[1] : "help";
  if (about != "help" && about != "-h" && about != "--help") flags.command = command_named(about);
  return flags;
}

}  // namespace

Flags parse_command_line(const std::vector<std::string>& arguments) {
  Flags flags;
  if (arguments.empty()) return flags;
  if (arguments.front().size() > 1 && arguments.front()[0] == '-') {
    return before_command(arguments.front());
  }
  if (arguments.front() == "help") return help_wanted(arguments);
  flags.command = command_named(arguments.front());
  ArgParser(arguments, flags).cut();
  return flags;
}

}  // namespace dlock
