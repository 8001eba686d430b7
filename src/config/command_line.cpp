#include "config/command_line.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/error.hpp"
#include "base/text.hpp"
#include "config/secrets.hpp"

namespace dlock {
namespace {

/// Words of other lock tools, separated by blanks, and what dlock has in their place.
struct ForeignWords {
  std::string_view words;
  const char* meant;
};
constexpr ForeignWords flags_of_flock[] = {
    {"-F --no-fork",
     "dlock must stay to renew the lease, and the command's exit code is passed on"},
    {"-o --close", "not needed: the command never gets a descriptor of dlock"},
    {"-u --unlock", "to release a lock: dlock release"},
    {"--timeout", "use --wait"},
};
constexpr ForeignWords command_habits[] = {
    {"flock exec", "run -k KEY -- COMMAND"},
    {"lock hold", "run -k KEY -- COMMAND, or dlock acquire"},
    {"try", "run -n -k KEY -- COMMAND"},
    {"wait", "run -k KEY -w DUR -- COMMAND, or dlock latch wait"},
    {"unlock", "release"},
    {"free break kill steal force-unlock rm del delete remove", "release KEY --force"},
    {"extend refresh", "renew"},
    {"list ls ps show status info get who", "inspect"},
    {"watch", "inspect --watch"},
    {"check ping", "doctor"},
    {"version", "--version"},
};

std::string meant_by(std::string_view typed, std::span<const ForeignWords> table) {
  for (const ForeignWords& each : table) {
    for (auto words = each.words; !words.empty();) {
      if (take_until(words, ' ') == typed) return each.meant;
    }
  }
  return "";
}

void refuse_if_of_flock(const std::string& spelled) {
  const std::string instead = meant_by(spelled, flags_of_flock);
  if (!instead.empty()) throw_usage(spelled + " is a flag of flock, not of dlock: " + instead);
}

/// The name of a flag, for a message. The argument may be a misplaced URL whose password contains a
/// `=`, so shown_flag() redacts the whole argument before it cuts at the `=`.
std::string shown_flag(const std::string& argument) {
  const auto name = argument.substr(0, argument.find('='));
  const auto shown = redacted(name.find_first_of(":@") == std::string::npos ? name : argument);
  return shown.substr(0, shown.find('='));
}

/// Splits the arguments of one command into options and operands, by the table of options.
class ArgParser {
 public:
  ArgParser(const std::vector<std::string>& arguments, CommandLine& line)
      : arguments_(arguments),
        line_(line),
        command_(*line.command),
        operands_(subcommand(command_).operands) {}

  void cut() {
    while (next_ < arguments_.size() && !line_.help && !line_.version) {
      const std::string& argument = arguments_[next_];
      if (argument == "--") {
        ++next_;
        while (next_ < arguments_.size()) take_operand();
      } else if (argument.size() < 2 || argument[0] != '-') {
        take_operand();
      } else if (argument[1] == '-') {
        take_long();
      } else {
        take_cluster();
      }
    }
  }

 private:
  void take_operand() {
    const std::string& operand = arguments_[next_++];
    const bool is_pattern = operand.find_first_of("*?[") != std::string::npos;
    if (operands_ == Operands::none) {
      throw_usage(std::string(subcommand(command_).name) +
                  " takes no operand: " + in_quotes(operand));
    }
    if (operands_ == Operands::command) {
      const auto from = arguments_.begin() + static_cast<std::ptrdiff_t>(next_) - 1;
      line_.operands.assign(from, arguments_.end());
      next_ = arguments_.size();
    } else if ((operands_ == Operands::verb && line_.operands.empty()) ||
               (operands_ == Operands::patterns && is_pattern)) {
      line_.operands.push_back(operand);
    } else {
      add(option("key"), operand);
    }
  }

  void take_long() {
    const std::string& argument = arguments_[next_++];
    const auto equals = argument.find('=');
    const std::string spelled = argument.substr(0, equals);
    const Option& found = known(spelled, shown_flag(argument));
    if (equals != std::string::npos) {
      add(found, argument.substr(equals + 1));
    } else {
      add(found, found.takes_value() ? value_behind(found) : std::nullopt);
    }
  }

  /// Parses `-nkKEY`: letters without a value, then at most one with a value.
  void take_cluster() {
    const std::string& cluster = arguments_[next_++];
    for (std::size_t i = 1; i < cluster.size(); ++i) {
      const std::string spelled = std::string("-") + cluster[i];
      const std::string where = cluster.size() > 2 ? " in " + redacted(cluster) : "";
      const Option& found = known(spelled, redacted(spelled) + where);
      if (found.takes_value()) {
        return add(found, i + 1 < cluster.size() ? cluster.substr(i + 1) : value_behind(found));
      }
      add(found, std::nullopt);
    }
  }

  std::optional<std::string> value_behind(const Option& option) {
    if (next_ == arguments_.size()) {
      throw_usage(option.shown() + " needs a value: " + option.shown() + " " + option.value.name);
    }
    return arguments_[next_++];
  }

  const Option& known(const std::string& spelled, const std::string& shown) const {
    const Option* found = find_option(spelled, command_);
    refuse_if_of_flock(spelled);
    if (found == nullptr) {
      throw_usage("unknown flag " + shown + suggestion_for(spelled));
    }
    if (found->belongs_to(command_)) return *found;
    std::vector<std::string> others;
    for (const Subcommand& each : subcommands()) {
      const bool has_it = find_option(spelled, each.command)->belongs_to(each.command);
      if (has_it) others.emplace_back(each.name);
    }
    throw_usage(spelled + " is not a flag of " + subcommand(command_).name + ", but of " +
                joined(others, ", "));
  }

  std::string suggestion_for(const std::string& spelled) const {
    std::vector<std::string> names;
    for (const Option& each : options()) {
      if (each.belongs_to(command_)) names.push_back(each.shown());
    }
    return did_you_mean(spelled, names);
  }

  void add(const Option& option, std::optional<std::string> value) {
    if (!option.takes_value() && value) throw_usage(option.shown() + " takes no value");
    // The script may pass on the empty token of a failed acquire.
    const bool token_to_release = command_ == Command::release && option.is("token");
    if (value && value->empty() && !option.has(may_be_empty) && !token_to_release) {
      throw_usage(option.shown() + ": the value is empty");
    }
    std::erase_if(line_.given, [&](const GivenOption& earlier) {
      const unsigned choice = option.traits & (one_wait | one_limit);
      const bool same_choice = (earlier.option->traits & choice) != 0;
      return !option.has(adds_up) && (earlier.option == &option || same_choice);
    });
    line_.given.push_back({&option, std::move(value).value_or("")});
    line_.help |= option.is("help");
    line_.version |= option.is("version");
  }

  const std::vector<std::string>& arguments_;
  CommandLine& line_;
  const Command command_;
  const Operands operands_;
  std::size_t next_ = 1;  // after the command's name
};

CommandLine before_command(const std::string& argument) {
  CommandLine line;
  line.help = argument == "-h" || argument == "--help";
  line.version = argument == "-V" || argument == "--version";
  if (line.help || line.version) return line;
  refuse_if_of_flock(argument.substr(0, argument.find('=')));
  throw_usage(shown_flag(argument) + " comes before the command of dlock: options come after it, " +
              "as in dlock run -k KEY -- COMMAND");
}

[[noreturn]] void refuse_command(const std::string& name) {
  const std::string begin = "unknown command " + in_quotes(name);
  if (const auto meant = meant_by(name, command_habits); !meant.empty()) {
    throw_usage(begin + ": did you mean dlock " + meant + "?");
  }
  // A user of flock names a path in this place: the file to lock.
  if (name.find('/') != std::string::npos) {
    throw_usage(begin + ": a command runs under a lock with dlock run -k KEY -- COMMAND");
  }
  std::vector<std::string> names;
  for (const Subcommand& each : subcommands()) names.emplace_back(each.name);
  const std::string suggestion = did_you_mean(name, names);
  throw_usage(begin + (suggestion.empty() ? ": it is one of " + joined(names, ", ") : suggestion));
}

Command command_named(const std::string& name) {
  for (const Subcommand& each : subcommands()) {
    if (name == each.name) return each.command;
  }
  refuse_command(name);
}

/// Parses `dlock help` and `dlock help COMMAND`.
CommandLine help_wanted(const std::vector<std::string>& arguments) {
  CommandLine line;
  line.help = true;
  if (arguments.size() > 2) throw_usage("help takes one command: dlock help COMMAND");
  const std::string about = arguments.size() == 2 ? arguments[1] : "help";
  if (about != "help" && about != "-h" && about != "--help") line.command = command_named(about);
  return line;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> best(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) best[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) best[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = best[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      best[i][j] = std::min({best[i - 1][j] + 1, best[i][j - 1] + 1, change});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) best[i][j] = std::min(best[i][j], best[i - 2][j - 2] + 1);
    }
  }
  return best[a.size()][b.size()];
}

std::size_t letters(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return c != '-'; }));
}

}  // namespace

bool CommandLine::has(std::string_view name) const { return value(name).has_value(); }

std::vector<std::string> CommandLine::values(std::string_view name) const {
  std::vector<std::string> values;
  for (const GivenOption& each : given) {
    if (each.option->is(name)) values.push_back(each.value);
  }
  return values;
}

std::optional<std::string> CommandLine::value(std::string_view name) const {
  for (const GivenOption& each : given) {
    // An option that does not add up is listed once, with its last value.
    if (each.option->is(name)) return each.value;
  }
  return std::nullopt;
}

CommandLine parse_command_line(const std::vector<std::string>& arguments) {
  CommandLine line;
  if (arguments.empty()) return line;
  if (arguments.front().size() > 1 && arguments.front()[0] == '-') {
    return before_command(arguments.front());
  }
  if (arguments.front() == "help") return help_wanted(arguments);
  line.command = command_named(arguments.front());
  ArgParser(arguments, line).cut();
  return line;
}

std::string did_you_mean(std::string_view text, const std::vector<std::string>& candidates) {
  // Longer texts are not typing errors, and the table of distances stays small.
  constexpr std::size_t longest = 64;
  if (text.size() > longest || letters(text) < 2) return "";
  const std::string* nearest = nullptr;
  std::size_t least = std::max<std::size_t>(1, letters(text) / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = candidate.starts_with(text) ? 1 : edit_distance(text, candidate);
    if (distance >= least) continue;
    least = distance;
    nearest = &candidate;
  }
  return nearest == nullptr ? "" : ": did you mean " + *nearest + "?";
}

}  // namespace dlock
