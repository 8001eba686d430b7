#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "base/duration.hpp"
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

/// One line of a configuration file.
struct FileEntry {
  std::string name;
  SourcedValue value;
};

/// One configuration file as read: its names are checked, its values are not.
struct ConfigFile {
  std::vector<FileEntry> entries;
  std::vector<std::string> warnings;
};

/// Reads the file at `path`. Throws Error{configuration} if it cannot be read, or has a line that
/// is not `name = value`, an unknown name, or the same name twice. A missing file counts as empty
/// if `may_be_missing`.
ConfigFile read_config_file(const std::string& path, bool may_be_missing);

/// Reads a small file whole. Throws Error{host_refused}, whose message is only the reason.
std::string read_whole(const std::string& path, std::size_t at_most);

/// The warning about a file with `secret` ("a password") that every user may read; empty if they
/// may not.
std::string exposed_warning(const std::string& path, const char* secret);

/// The sources of settings: flags override variables, variables override files.
class Sources {
 public:
  Sources(const CommandLine& line, const Environment& environment, const std::string& system_file);

  /// The values of this option from each source that has it, by precedence. Several values from one
  /// source belong together (`--server`) and are never mixed with those of another source.
  std::vector<std::vector<SourcedValue>> of(std::string_view name) const;
  std::vector<SourcedValue> in_flags(std::string_view name) const;
  /// An empty variable counts as unset, because compose files set variables that way. An empty
  /// `DLOCK_SERVER` is refused, because the locks would be on another server.
  std::vector<SourcedValue> in_variable(const std::string& name) const;
  /// Whether the variable is set to an empty value.
  bool is_empty(const std::string& variable) const { return environment_(variable) == ""; }

  /// The configuration files, by precedence.
  const std::vector<ConfigFile>& files() const { return files_; }

 private:
  const CommandLine& line_;
  const Environment& environment_;
  std::vector<ConfigFile> files_;  // by precedence
};

/// Refuses flags that do not go with the choice, and says why. Variables and files are allowed,
/// because they may serve several choices.
void refuse_flags(const Sources& sources, std::initializer_list<const char*> names,
                  const char* why);

// Conversions from text to values; each refuses a bad value and names its source.

/// A duration in [least, most].
milliseconds duration_from(const SourcedValue& given, milliseconds least, milliseconds most);

/// A number in [low, high]; `what` names it in the message.
long long number_from(const SourcedValue& given, const std::string& what, long long low,
                      long long high);

/// `TERM`, `SIGTERM` or `15`, in any case.
int signal_from(const SourcedValue& given);

/// A descriptor that is open for writing.
int status_fd_from(const SourcedValue& given);

/// The first line of a text that other users will see, of at most 200 bytes; `what` names it.
std::string line_from(const SourcedValue& given, const std::string& what);

std::string prefix_from(const SourcedValue& given);

}  // namespace dlock
