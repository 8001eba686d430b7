#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "config/command_line.hpp"
#include "config/settings.hpp"
namespace dlock {

/// A value as it was written, and where: what an error message needs.
struct SourcedValue {
  std::string text;
  std::string place;  ///< `--ttl`, `DLOCK_TTL`, `/etc/dlock.conf:3: ttl`
  ErrorKind trouble;  ///< what a bad value at this place is

  /// Error{trouble} "place: why".
  [[noreturn]] void refuse(const std::string& why) const;
};

/// One line of a configuration file.
struct FileEntry {
  std::string name;
  SourcedValue value;
};

/// One configuration file, read; its names are known, its values not yet looked at.
struct ConfigFile {
  std::vector<FileEntry> entries;
  std::vector<std::string> warnings;
};

/// Reads the file at `path`. Throws Error{configuration} for a file that
/// cannot be read, a line that is no `name = value`, an unknown name, a name that stands twice.
/// A file that is not there is empty, if it may be missing.
ConfigFile read_config_file(const std::string& path, bool may_be_missing);

/// The small files dlock reads whole. Throws Error{host_refused} with the reason alone.
std::string read_whole(const std::string& path, std::size_t at_most);

/// The line that warns of a file with `secret` ("a password") which every user may read; empty if
/// all is well.
std::string exposed_warning(const std::string& path, const char* secret);

/// Where settings stand: flags over variables over files.
class Sources {
 public:
  Sources(const CommandLine& line, const Environment& environment, const std::string& system_file);

  /// All places that give the option of this name a value, the strongest first. Several values in
  /// one place belong together (`--server`); they are never mixed with those of another.
  std::vector<std::vector<SourcedValue>> of(std::string_view name) const;
  std::vector<SourcedValue> in_flags(std::string_view name) const;
  /// An empty variable is an unset one, as compose files make it; an empty `DLOCK_SERVER` is
  /// refused, since without it the locks would be others.
  std::vector<SourcedValue> in_variable(const std::string& name) const;
  /// Whether the variable is set, to nothing.
  bool is_empty(const std::string& variable) const { return environment_(variable) == ""; }

  /// What was read, the strongest first.
  const std::vector<ConfigFile>& files() const { return files_; }

 private:
  /// One per file that has the name, the user's file first.
  std::vector<std::vector<SourcedValue>> entries_of(std::string_view name) const;

  const CommandLine& line_;
  const Environment& environment_;
  std::vector<ConfigFile> files_;  // the strongest first
};

/// Refuses flags that do not go with what was chosen, and says why; a variable or a file may serve
/// several choices.
void refuse_flags(const Sources& sources, std::initializer_list<const char*> names,
                  const char* why);

}  // namespace dlock
