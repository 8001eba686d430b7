#pragma once

#include <optional>

#include "base/endpoint.hpp"
#include "config/settings.hpp"
#include "config/sources.hpp"

namespace dlock {

/// The password in a file, read for each login if it is a regular file: a pipe can be read only
/// once, and a descriptor may be reused later.
Password password_in(const SourcedValue& file, ServerSettings& settings);

/// The password that is not in the URL: of a file, a command or a variable, in the order that
/// resolve() documents. A file is read, or a command runs, for each login. Throws Error{usage} if
/// two sources exclude each other; choose_server() calls it.
std::optional<Password> configured_password(const Sources& sources, ServerSettings& settings);

}  // namespace dlock
