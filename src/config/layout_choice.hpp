#pragma once

#include "config/flags.hpp"
#include "config/settings.hpp"

namespace dlock {

/// Whose layout `settings` go by, of which all else is resolved: --compat and --all-kinds. Throws
/// Error{usage} where there is no such layout, where it has no room for another flag, or where its
/// library does not use such servers.
void resolve_layout(const Flags& flags, Settings& settings);

}  // namespace dlock
