#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "config/sources.hpp"

namespace dlock {

/// The password in a file, read for each login if it is a regular one.
Password password_in(const SourcedValue& file, std::vector<std::string>& warnings);

/// The password for the servers that a URL names, in the order that resolve() promises. A file is
/// opened once, as it may be a pipe, and a command runs once, for however many servers.
class OnePassword {
 public:
  /// With `redis` also from the variable of redis-cli.
  OnePassword(const Sources& sources, bool redis) : sources_(sources), redis_(redis) {}

  /// For a server whose URL brings `own`, if any.
  std::optional<Password> find(const std::optional<Password>& own);

  std::vector<std::string> warnings{};

 private:
  std::optional<Password> search();

  const Sources& sources_;
  bool redis_;
  bool read_ = false;
  std::optional<Password> found_{};
};

}  // namespace dlock
