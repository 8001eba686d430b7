#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "config/settings.hpp"
#include "support/files.hpp"
#include "support/temp_dir.hpp"
#include "unit/error_of.hpp"

namespace dlock::test {

/// The message of the usage error for `arguments`; empty if they are valid.
inline std::string refusal(const std::vector<std::string>& arguments) {
  const auto error = error_of([&] { parse_command_line(arguments); });
  if (!error) return "";
  return error->first == ErrorKind::usage ? error->second : "not usage: " + error->second;
}

/// A fake environment to resolve settings in: variables, and files in a directory of its own. HOME
/// is set.
class Surroundings {
 public:
  Surroundings() { variables["HOME"] = dir_.path(); }

  std::map<std::string, std::string> variables;

  std::string path(const std::string& name) const { return dir_ / name; }
  std::string user_file() const { return path(".config/dlock.conf"); }
  std::string system_file() const { return path("etc.conf"); }
  /// Writes a file that only its owner can read, and returns its path.
  std::string file(const std::string& name, const std::string& text) const;
  std::string user(const std::string& text) const { return file(".config/dlock.conf", text); }
  std::string system(const std::string& text) const { return file("etc.conf", text); }

  Settings resolve(const std::vector<std::string>& arguments) const;
  /// The same for a command with a known settings type.
  template <typename CommandSettings>
  CommandSettings resolve(const std::vector<std::string>& arguments) const {
    return std::get<CommandSettings>(resolve(arguments));
  }
  /// The same for invalid settings: returns the message of the usage error.
  std::string usage_error(const std::vector<std::string>& arguments) const {
    return error_line(arguments, ErrorKind::usage);
  }
  std::string file_error(const std::vector<std::string>& arguments) const {
    return error_line(arguments, ErrorKind::configuration);
  }

 private:
  std::string error_line(const std::vector<std::string>& arguments, ErrorKind expected) const;

  TempDir dir_;
};

}  // namespace dlock::test
