#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace dlock::test {

/// The kind and the message of the error of `action`; nothing if it succeeds.
inline std::optional<std::pair<ErrorKind, std::string>> error_of(
    const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return std::pair(error.kind(), std::string(error.what()));
  }
  return std::nullopt;
}

inline std::optional<ErrorKind> error_kind_of(const std::function<void()>& action) {
  const auto error = error_of(action);
  return error ? std::optional(error->first) : std::nullopt;
}

}  // namespace dlock::test
