#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace dlock {

/// The codes of gRPC that etcd's gateway answers with, as far as they are told apart.
enum class EtcdCode : int {
  ok = 0,
  unknown = 2,
  invalid_argument = 3,
  not_found = 5,
  permission_denied = 7,
  resource_exhausted = 8,
  failed_precondition = 9,
  unavailable = 14,
  unauthenticated = 16,
};

struct EtcdAnswer {
  EtcdCode code = EtcdCode::ok;
  std::string message{};  ///< of an error: not escaped, and cut if it is long
  nlohmann::json fields = nlohmann::json::object();
};

/// Parses one answer of etcd's gateway. One that begins with `{"result"` or `{"error"` is part of a
/// stream. Returns nothing if `text` is no answer.
std::optional<EtcdAnswer> parse_answer(std::string_view text);

}  // namespace dlock
