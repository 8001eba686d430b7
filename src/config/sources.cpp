#include "config/sources.hpp"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/duration.hpp"
#include "base/fd.hpp"
#include "base/moment.hpp"
#include "base/text.hpp"
#include "config/secrets.hpp"

namespace dlock {
namespace {

std::optional<std::string> home_directory(const Environment& environment) {
  const char* home = environment("HOME");
  if (home != nullptr && *home != '\0') return home;
  // No other thread runs yet.
  const passwd* entry = getpwuid(geteuid());  // NOLINT(concurrency-mt-unsafe)
  if (entry == nullptr || *entry->pw_dir == '\0') return std::nullopt;
  return entry->pw_dir;
}

constexpr std::size_t largest_config_file = 1 << 20;
constexpr const char* expected = "expected \"name = value\"";

void check_name(const SourcedValue& whole, const std::string& name) {
  std::vector<std::string> names;
  for (const Option& each : options()) {
    if (each.has(in_files)) names.emplace_back(each.name);
  }
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  // A line without `name =` may hold a password, with base64 padding as its first `=`.
  const std::string meant = did_you_mean(name, names);
  const bool may_be_password = meant.empty() || name.find_first_of(":@/ \t") != std::string::npos;
  if (may_be_password) whole.refuse(std::string("unknown setting: ") + expected);
  whole.refuse("unknown setting " + in_quotes(name) + meant);
}

/// The name and the value of a line.
std::pair<std::string, SourcedValue> parse_line(const std::string& place, std::string_view line) {
  const SourcedValue whole{"", place, ErrorKind::configuration};
  if (line.find('\0') != std::string_view::npos) whole.refuse("the line holds a NUL");
  const auto equals = line.find('=');
  if (equals == std::string_view::npos) whole.refuse(expected);
  const std::string name(trimmed(line.substr(0, equals)));
  check_name(whole, name);
  const SourcedValue value{std::string(trimmed(line.substr(equals + 1))), place + ": " + name,
                           ErrorKind::configuration};
  if (value.text.empty()) value.refuse("the value is empty");
  return {name, value};
}

/// The group of a setting. A file may set only one of a group: the server has one password.
std::string kind_of_setting(const std::string& name) {
  return name == "password-command" ? "password" : name.substr(0, name.find("-file"));
}

}  // namespace

void SourcedValue::refuse(const std::string& why) const {
  throw Error(trouble, place + ": " + why);
}

Sources::Sources(const CommandLine& line, const Environment& environment,
                 const std::string& system_file)
    : line_(line), environment_(environment) {
  const auto chosen = first("config");
  if (!chosen) {
    const auto home = home_directory(environment_);
    if (home) add_file_of_home(*home);
    add_file(system_file, true);
    return;
  }
  try {
    add_file(chosen->text, false);
  } catch (const Error& fault) {
    throw fault.reworded(chosen->place + ": " + fault.what());
  }
}

/// HOME may be another user's home, because sudo, su and setpriv can keep it; a file that its owner
/// made unreadable for others is not used.
void Sources::add_file_of_home(const std::string& home) {
  const std::string path = home + "/.config/dlock.conf";
  struct stat status {};
  const bool is_closed = access(path.c_str(), R_OK) != 0 && errno == EACCES;
  if (!is_closed || stat(home.c_str(), &status) != 0 || status.st_uid == geteuid()) {
    return add_file(path, true);
  }
  warnings_.push_back("HOME is " + escaped(home) + ", the home of another user: " + escaped(path) +
                      " cannot be read and is not used");
}

/// A missing file counts as empty if `may_be_missing`.
void Sources::add_file(const std::string& path, bool may_be_missing) {
  const bool is_missing = access(path.c_str(), F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR);
  if (may_be_missing && is_missing) return;
  std::string content;
  try {
    content = read_whole(path, largest_config_file);
  } catch (const Error& fault) {
    throw Error(ErrorKind::configuration, fault.what());
  }
  ConfigFile& file = files_.emplace_back();
  bool secret = false;
  std::string_view rest = content;
  for (int number = 1; !rest.empty(); ++number) {
    const auto line = trimmed(take_until(rest, '\n'));
    if (line.empty() || line.front() == '#') continue;
    auto [name, value] = parse_line(escaped(path) + ":" + std::to_string(number), line);
    for (const auto& [earlier, other] : file) {
      if (name == "server" || kind_of_setting(earlier) != kind_of_setting(name)) continue;
      value.refuse("is already set at " + other.place);
    }
    secret |= name == "password" || (name == "server" && holds_password(value.text));
    file.emplace_back(std::move(name), std::move(value));
  }
  if (secret) warn_if_exposed(path, "a password", warnings_);
}

std::vector<std::vector<SourcedValue>> Sources::of(std::string_view name) const {
  std::vector<std::vector<SourcedValue>> places{in_flags(name)};
  const Option& found = option(name);
  if (found.has_other_places(*line_.command)) {
    auto& variable = places.emplace_back();
    if (found.variable != nullptr) variable = in_variable(found.variable);
    for (const ConfigFile& file : files_) {
      auto& values = places.emplace_back();
      for (const auto& [each, value] : file) {
        if (each == name) values.push_back(value);
      }
    }
  }
  return places;
}

std::optional<SourcedValue> Sources::first(std::string_view name) const {
  for (auto& place : of(name)) {
    if (!place.empty()) return std::move(place.front());
  }
  return std::nullopt;
}

std::vector<SourcedValue> Sources::in_flags(std::string_view name) const {
  std::vector<SourcedValue> values;
  for (auto& text : line_.values(name)) {
    values.push_back({std::move(text), option(name).shown(), ErrorKind::usage});
  }
  return values;
}

std::vector<SourcedValue> Sources::in_variable(const char* name) const {
  const char* text = environment_(name);
  const bool names_servers = std::string_view(name) == option("server").variable;
  if (text == nullptr || (*text == '\0' && !names_servers)) return {};
  const SourcedValue value{text, name, ErrorKind::usage};
  if (value.text.empty()) value.refuse("the variable is empty: unset it, or give it a value");
  return {value};
}

void Sources::refuse_flags(std::initializer_list<const char*> names, const char* why) const {
  for (const char* name : names) {
    for (const SourcedValue& given : in_flags(name)) given.refuse(why);
  }
}

std::string read_whole(const std::string& path, std::size_t at_most) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) throw_errno("cannot read " + in_quotes(path));
  std::string content;
  char part[4096];
  while (true) {
    const ssize_t count = read(file.get(), part, sizeof part);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_errno("cannot read " + in_quotes(path));
    if (count == 0) return content;
    content.append(part, static_cast<std::size_t>(count));
    if (content.size() > at_most) {
      throw Error(ErrorKind::host_refused,
                  in_quotes(path) + " is longer than " + std::to_string(at_most) + " bytes");
    }
  }
}

const std::string& path_from(const SourcedValue& given) {
  const bool in_file = given.trouble == ErrorKind::configuration;
  if (in_file && !given.text.starts_with('/')) given.refuse("is not an absolute path");
  return given.text;
}

void warn_if_exposed(const std::string& path, const char* secret,
                     std::vector<std::string>& warnings) {
  struct stat status {};
  const bool is_file = stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
  if (!is_file || (status.st_mode & S_IROTH) == 0) return;
  const std::string name = escaped(path);
  warnings.push_back(name + " holds " + secret + " and every user may read it: chmod o-r " + name);
}

milliseconds duration_from(const SourcedValue& given, milliseconds least, milliseconds most) {
  const auto span = parse_duration(given.text);
  if (!span) {
    given.refuse("invalid duration " + in_quotes(given.text) +
                 " (examples: 10, 500ms, 1h30m; at most 365d)");
  }
  if (*span < least || *span > most) {
    given.refuse(in_quotes(given.text) + " is not between " + human_duration(least) + " and " +
                 human_duration(most));
  }
  return *span;
}

WallTime moment_from(const SourcedValue& given, milliseconds least, milliseconds most) {
  const auto now = wall_now();
  const auto moment = parse_moment(given.text, now);
  if (!moment) {
    given.refuse("invalid time " + in_quotes(given.text) +
                 " (examples: 17:00, 2026-11-29T17:00, 2026-11-29T16:00Z)");
  }
  if (*moment < now + least) given.refuse(in_quotes(given.text) + " has passed");
  if (*moment > now + most) {
    const auto days = std::chrono::floor<std::chrono::days>(most).count();
    given.refuse(in_quotes(given.text) + " is more than " + std::to_string(days) +
                 " days from now");
  }
  return *moment;
}

long long number_from(const SourcedValue& given, const std::string& what, long long low,
                      long long high) {
  const auto number = parse_number(given.text, low, high);
  if (!number) {
    given.refuse("invalid " + what + " " + in_quotes(given.text) + ": a number from " +
                 std::to_string(low) + " to " + std::to_string(high) + " is expected");
  }
  return *number;
}

int signal_from(const SourcedValue& given) {
  const bool has_sig = strncasecmp(given.text.c_str(), "SIG", 3) == 0;
  const std::string name = has_sig ? given.text.substr(3) : given.text;
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    const char* known = sigabbrev_np(signal);
    if (known == nullptr && signal < SIGRTMIN) continue;
    const bool named = known != nullptr && strcasecmp(known, name.c_str()) == 0;
    if (named || given.text == std::to_string(signal)) return signal;
  }
  given.refuse("invalid signal " + in_quotes(given.text) + " (examples: TERM, SIGTERM, 15)");
}

int status_fd_from(const SourcedValue& given) {
  const int fd = static_cast<int>(number_from(given, "file descriptor", 0, 1'000'000));
  const int mode = fcntl(fd, F_GETFL);
  if (mode < 0)
    given.refuse(given.text + " is not open: redirect it after the command, for example 3>FILE");
  if ((mode & O_ACCMODE) == O_RDONLY) given.refuse(given.text + " is not open for writing");
  return fd;
}

std::string line_from(const SourcedValue& given, const std::string& what) {
  constexpr std::size_t longest_line = 200;
  if (!is_utf8(given.text)) given.refuse(what + " is not UTF-8");
  std::string line = given.text.substr(0, given.text.find_first_of(std::string_view("\r\n\0", 3)));
  if (line.size() > longest_line) line.resize(longest_line);
  while (!is_utf8(line)) line.pop_back();
  return line;
}

bool stop_on_loss_from(const SourcedValue& given) {
  if (given.text == "stop" || given.text == "ignore") return given.text == "stop";
  given.refuse(in_quotes(given.text) + " is neither stop nor ignore");
}

std::string reason_from(const SourcedValue& given) {
  std::string line = line_from(given, "the reason");
  if (line == given.text) return line;
  given.refuse("the reason is more than one line, or longer than 200 bytes");
}

std::string prefix_from(const SourcedValue& given) {
  constexpr std::size_t longest_prefix = 100;
  std::string plain = given.text;
  std::erase(plain, '\\');
  // Braces would decide which part of the key Redis Cluster hashes to a slot.
  const bool has_braces = plain.find_first_of("{}") != std::string::npos;
  if (given.text.size() > longest_prefix || has_braces || escaped(plain) != plain) {
    given.refuse("a prefix is UTF-8 of at most 100 bytes, without {, } and control characters");
  }
  return given.text;
}

}  // namespace dlock
