#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/cut.hpp"
#include "base/escape.hpp"
#include "base/fd.hpp"
#include "config/redaction.hpp"
#include "config/sources.hpp"
#include "config/suggestion.hpp"

namespace dlock {
namespace {

constexpr std::size_t largest_config_file = 1 << 20;
constexpr const char* expected = "expected \"name = value\"";

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  const auto from = text.find_first_not_of(blanks);
  if (from == std::string_view::npos) return "";
  return text.substr(from, text.find_last_not_of(blanks) + 1 - from);
}

/// Whether `line`, whose `name` ends at `equals`, looks like one that was written without the
/// `name =`: then the first `=` may stand inside of a password, in base64 for one.
bool may_show_password(std::string_view line, std::size_t equals, std::string_view name) {
  if (name.find_first_of(":@/") != std::string_view::npos) return true;
  const auto blank = name.find_first_of(" \t\r");
  const auto word = name.substr(0, blank);
  const std::vector<std::string> secrets = {"password", "server"};
  const bool is_secret = std::find(secrets.begin(), secrets.end(), word) != secrets.end() ||
                         !did_you_mean(word, secrets).empty();
  if (blank != std::string_view::npos && is_secret) return true;
  const bool is_padding = line.find_first_not_of('=', equals) == std::string_view::npos;
  return is_padding && name.size() == equals && equals > 0;
}

void check_name(const SourcedValue& whole, std::string_view line, std::size_t equals,
                const std::string& name) {
  std::vector<std::string> names;
  for (const Option& each : options()) {
    if (each.has(in_files)) names.emplace_back(each.name);
  }
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  if (may_show_password(line, equals, name)) whole.refuse(expected);
  whole.refuse("unknown setting " + in_quotes(name) + did_you_mean(name, names));
}

FileEntry parse_line(const std::string& place, std::string_view line) {
  const SourcedValue whole{"", place, ErrorKind::configuration};
  if (line.find('\0') != std::string_view::npos) whole.refuse("the line holds a NUL");
  const auto equals = line.find('=');
  if (equals == std::string_view::npos) whole.refuse(expected);
  const std::string name(trimmed(line.substr(0, equals)));
  check_name(whole, line, equals, name);
  const SourcedValue value{std::string(trimmed(line.substr(equals + 1))), place + ": " + name,
                           ErrorKind::configuration};
  if (value.text.empty()) value.refuse("the value is empty");
  return {name, value};
}

/// The names that exclude each other in one file: all but `server` stand once, and there is one
/// password.
void check_alone(const std::vector<FileEntry>& earlier, const FileEntry& entry) {
  const auto kind = [](const std::string& name) {
    return name == "password-command" ? "password" : name.substr(0, name.find("-file"));
  };
  for (const FileEntry& other : earlier) {
    if (entry.name == "server" || kind(other.name) != kind(entry.name)) continue;
    entry.value.refuse("is already set at " + other.value.place);
  }
}

bool is_secret(const FileEntry& entry) {
  return entry.name == "password" || (entry.name == "server" && holds_password(entry.value.text));
}

bool others_may_read(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         (status.st_mode & S_IROTH) != 0;
}

/// A path that is a URL came to the wrong flag, perhaps with its password.
std::string shown_path(const std::string& path) {
  return path.find("://") == std::string::npos ? escaped(path) : redacted(path);
}

bool is_missing(const std::string& path) {
  return access(path.c_str(), F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

}  // namespace

std::string read_whole(const std::string& path, std::size_t at_most) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) throw_errno("cannot read " + shown_path(path));
  std::string content;
  char part[4096];
  while (true) {
    const ssize_t count = read(file.get(), part, sizeof part);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_errno("cannot read " + shown_path(path));
    if (count == 0) return content;
    content.append(part, static_cast<std::size_t>(count));
    if (content.size() > at_most) {
      throw Error(ErrorKind::host_refused,
                  shown_path(path) + " is longer than " + std::to_string(at_most) + " bytes");
    }
  }
}

std::string exposed_warning(const std::string& path, const char* secret) {
  if (!others_may_read(path)) return "";
  const std::string name = escaped(path);
  return name + " holds " + secret + " and every user may read it: chmod o-r " + name;
}

ConfigFile read_config_file(const std::string& path, bool may_be_missing) {
  if (may_be_missing && is_missing(path)) return {};
  std::string content;
  try {
    content = read_whole(path, largest_config_file);
  } catch (const Error& fault) {
    throw Error(ErrorKind::configuration, fault.what());
  }
  ConfigFile file;
  std::string_view rest = content;
  for (int number = 1; !rest.empty(); ++number) {
    const auto line = trimmed(take_until(rest, '\n'));
    if (line.empty() || line.front() == '#') continue;
    auto entry = parse_line(escaped(path) + ":" + std::to_string(number), line);
    check_alone(file.entries, entry);
    file.entries.push_back(std::move(entry));
  }
  const std::string warning = exposed_warning(path, "a password");
  const bool secret = std::any_of(file.entries.begin(), file.entries.end(), is_secret);
  if (secret && !warning.empty()) file.warnings.push_back(warning);
  return file;
}

}  // namespace dlock
