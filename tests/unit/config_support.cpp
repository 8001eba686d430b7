#include "unit/config_support.hpp"

#include <sys/stat.h>

namespace dlock::test {

std::string Surroundings::file(const std::string& name, const std::string& text) const {
  mkdir(path(".config").c_str(), 0700);
  write_file(path(name), text);
  chmod(path(name).c_str(), 0600);
  return path(name);
}

Settings Surroundings::resolve(const std::vector<std::string>& arguments) const {
  const auto environment = [this](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  return dlock::resolve(parse_command_line(arguments), environment, system_file());
}

std::string Surroundings::error_line(const std::vector<std::string>& arguments,
                                     ErrorKind expected) const {
  const auto error = error_of([&] { resolve(arguments); });
  if (!error) return "no error";
  return error->first == expected ? error->second : "the wrong kind of error: " + error->second;
}

}  // namespace dlock::test
