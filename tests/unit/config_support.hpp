#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.hpp"
#include "config/settings.hpp"
#include "support/files.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

/// The error of `action`: its kind and its line; nothing if there was none.
inline std::optional<std::pair<ErrorKind, std::string>> error_of(
    const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return std::pair(error.kind(), std::string(error.what()));
  }
  return std::nullopt;
}

/// The line of Error{usage} that `arguments` are refused with; empty if they are not.
inline std::string refusal(const std::vector<std::string>& arguments) {
  const auto error = error_of([&] { parse_command_line(arguments); });
  if (!error) return "";
  return error->first == ErrorKind::usage ? error->second : "not usage: " + error->second;
}

/// A made-up place to resolve settings in: variables, and files below a directory of its own. HOME
/// is set.
class Surroundings {
 public:
  Surroundings() { variables["HOME"] = dir_.path(); }

  std::map<std::string, std::string> variables;

  std::string path(const std::string& name) const { return dir_ / name; }
  std::string user_file() const { return path(".config/dlock.conf"); }
  std::string system_file() const { return path("etc.conf"); }
  /// Writes a file below the directory, for its owner alone, and says where.
  std::string file(const std::string& name, const std::string& text) const;
  std::string user(const std::string& text) const { return file(".config/dlock.conf", text); }
  std::string system(const std::string& text) const { return file("etc.conf", text); }

  Settings resolve(const std::vector<std::string>& arguments) const;
  /// The same for a command whose type is known.
  template <typename CommandSettings>
  CommandSettings resolve(const std::vector<std::string>& arguments) const {
    return std::get<CommandSettings>(resolve(arguments));
  }
  /// The same for what must fail: the kind and the line.
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
