#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace dlock {

/// The text at a path such as `/metadata/name`; empty if there is none.
inline std::string text_at(const nlohmann::json& object, const std::string& path) {
  const nlohmann::json::json_pointer at(path);
  if (!object.contains(at)) return "";
  const nlohmann::json& found = object[at];
  return found.is_string() ? found.get<std::string>() : "";
}

}  // namespace dlock
