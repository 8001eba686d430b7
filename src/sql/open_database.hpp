#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cas/cas_backend.hpp"

namespace dlock {

/// The database behind a URL, not connected yet. `shown`: the URL for people; `password` goes
/// before any other.
std::unique_ptr<CasBackend> open_database(const std::string& url, const std::string& shown,
                                          const std::optional<std::string>& password);

}  // namespace dlock
