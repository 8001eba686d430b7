#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "config/command_line.hpp"
#include "config/settings.hpp"

namespace dlock {

/// A value as it was written, and its source for error messages.
struct SourcedValue {
  std::string text;
  std::string place;  ///< `--ttl`, `DLOCK_TTL`, `/etc/dlock.conf:3: ttl`
  ErrorKind trouble;  ///< the kind of error if the value is bad

  /// Throws Error{trouble} "place: why".
  [[noreturn]] void refuse(const std::string& why) const;
};

/// Reads a small file whole. Throws Error{host_refused}; its message names the file, but not the
/// setting that named the file.
std::string read_whole(const std::string& path, std::size_t at_most);

/// The given path. A path in a configuration file must be absolute, because cron, a login and
/// systemd start in different directories.
const std::string& path_from(const SourcedValue& given);

/// Adds a warning if every user may read this file, which has `secret` ("a password").
void warn_if_exposed(const std::string& path, const char* secret,
                     std::vector<std::string>& warnings);

/// The sources of settings: flags override variables, variables override files.
class Sources {
 public:
  /// Throws Error{configuration} for a file that cannot be read, or has a line that is not
  /// `name = value`, an unknown name, or the same name twice. Its values are not checked.
  Sources(const CommandLine& line, const Environment& environment, const std::string& system_file);

  /// The values of this option from each source, by precedence: flags, variable, files; empty for a
  /// source that does not have it. Several values from one source belong together (`--server`) and
  /// are never mixed with those of another source.
  std::vector<std::vector<SourcedValue>> of(std::string_view name) const;
  /// The value with the highest precedence.
  std::optional<SourcedValue> first(std::string_view name) const;
  std::vector<SourcedValue> in_flags(std::string_view name) const;
  /// The value of a variable. An empty variable counts as unset, because compose files set
  /// variables that way. But an empty `DLOCK_SERVER` is refused, because without it the locks would
  /// be on another server.
  std::vector<SourcedValue> in_variable(const char* name) const;
  /// Refuses these flags if they are given, for the reason `why`. Variables and files may set the
  /// same options, because they may serve other commands and servers, too.
  void refuse_flags(std::initializer_list<const char*> names, const char* why) const;
  /// Whether the variable is set to an empty value.
  bool is_empty(const char* variable) const {
    const char* text = environment_(variable);
    return text != nullptr && *text == '\0';
  }

  /// Warnings about the configuration files.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  /// The names of a file with their values, in the order of its lines.
  using ConfigFile = std::vector<std::pair<std::string, SourcedValue>>;

  void add_file(const std::string& path, bool may_be_missing);
  void add_file_of_home(const std::string& home);

  const CommandLine& line_;
  const Environment& environment_;
  std::vector<ConfigFile> files_;  // by precedence
  std::vector<std::string> warnings_;
};

// Conversions from text to values; each refuses a bad value and names its source.

/// A duration in [least, most].
milliseconds duration_from(const SourcedValue& given, milliseconds least, milliseconds most);

/// A moment that is between `least` and `most` from now; parse_moment() has its forms.
WallTime moment_from(const SourcedValue& given, milliseconds least, milliseconds most);

/// A number in [low, high]; `what` names it in the message.
long long number_from(const SourcedValue& given, const std::string& what, long long low,
                      long long high);

/// `TERM`, `SIGTERM` or `15`, in any case.
int signal_from(const SourcedValue& given);

/// A descriptor that is open for writing.
int status_fd_from(const SourcedValue& given);

/// The first line of a text that other users will see, of at most 200 bytes; `what` names it.
std::string line_from(const SourcedValue& given, const std::string& what);

/// A reason for an eviction, which must be one such line.
std::string reason_from(const SourcedValue& given);

/// `stop` or `ignore`.
bool stop_on_loss_from(const SourcedValue& given);

std::string prefix_from(const SourcedValue& given);

}  // namespace dlock
