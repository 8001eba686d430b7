#pragma once

#include <string>
#include <vector>

#include "local/directory.hpp"

namespace dlock {

/// The names of the directory, in no order; throws Error{host_refused} if it cannot be read.
std::vector<std::string> names_in(const Directory& directory);

/// Takes away what nobody needs: files of keys that were free for a week (until then they keep the
/// fence), of latches as old that have ended, and mailboxes whose owners were killed. Looks at a
/// few names only, so it is called whenever a new key's file was made, and the directory stays as
/// large as its use.
void collect_garbage(const Directory& directory);

}  // namespace dlock
