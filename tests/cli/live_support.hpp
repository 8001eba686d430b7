#pragma once

#include <doctest/doctest.h>

#include <map>
#include <string>

#include "cli/place.hpp"
#include "support/shell_terminal.hpp"

namespace dlock::test {

/// A user at a UTF-8 terminal with a movable cursor, where $D finds the locks of `place`;
/// `variables` override the environment.
class Watcher : public ShellTerminal {
 public:
  explicit Watcher(const Place& place, std::map<std::string, std::string> variables = {})
      : ShellTerminal(dlock_path(), at(place, std::move(variables))) {
    resize(100);
    type("cd " + place.dir().path() + "; echo here-$((1+1))");
    REQUIRE(shows("here-2"));
  }

 private:
  static std::map<std::string, std::string> at(const Place& place,
                                               std::map<std::string, std::string> variables) {
    variables.emplace("DLOCK_SERVER", place.url());
    variables.emplace("DLOCK_CONFIG", "/dev/null");
    variables.emplace("TERM", "xterm");
    variables.emplace("LC_ALL", "C.UTF-8");
    variables.emplace("NO_COLOR", "");
    return variables;
  }
};

}  // namespace dlock::test
