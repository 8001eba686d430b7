#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "config/sources.hpp"

namespace dlock {

/// The password in a file, read for each login if it is a regular file.
Password password_in(const SourcedValue& file, std::vector<std::string>& warnings);

/// The password for the servers that a URL names, in the order that resolve() promises. It opens a
/// file only once, because that may be a pipe, and runs a command only once for all servers.
class OnePassword {
 public:
  /// With `redis`, the variable of redis-cli counts, too.
  OnePassword(const Sources& sources, bool redis) : sources_(sources), redis_(redis) {}

  /// The password for a server; `own` is the one in its URL, if any.
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
