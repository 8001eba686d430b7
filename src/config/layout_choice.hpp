#pragma once

#include "config/settings.hpp"

namespace dlock {

/// Sets the layout of --compat, once all other settings are resolved. Throws Error{usage} if there
/// is no such layout, if it does not support another flag, or if its library does not use such
/// servers.
void resolve_layout(const CommandLine& line, LockSettings& settings);

/// Applies --all-kinds, once all other settings are resolved: keys become patterns. Throws
/// Error{usage} if other libraries have no locks on this server, or if their locks cannot be shown
/// in this form.
void resolve_all_kinds(InspectSettings& settings);

}  // namespace dlock
