#pragma once

#include "config/settings.hpp"

namespace dlock {

/// --compat: whose layout `settings` go by, of which all else is resolved. Throws Error{usage}
/// where there is no such layout, where it has no room for another flag, or where its library does
/// not use such servers.
void resolve_layout(const CommandLine& line, LockSettings& settings);

/// --all-kinds, of which all else is resolved: keys become patterns. Throws Error{usage} where no
/// other library has locks, or where they cannot be shown so.
void resolve_all_kinds(InspectSettings& settings);

}  // namespace dlock
