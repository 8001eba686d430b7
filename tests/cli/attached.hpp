#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "cli/place.hpp"

namespace dlock::test {

/// The living processes that `acquire --attach` has started for process `pid`.
std::vector<pid_t> keepers_of(pid_t pid);

/// Waits until none is left.
bool keepers_leave(pid_t pid);

/// Waits until the lease of `key` on a server has been renewed twice; false on timeout.
bool is_renewed_twice(const Place& place, const std::string& key);

/// A shell that has run `first` and then `T=$(dlock acquire OPTIONS --attach $$)`, has written
/// "in", and goes on with `then`, which has $D and $T.
Process attached(const Place& place, const std::string& options,
                 const std::string& then = "exec sleep 60", const std::string& first = ":");

/// Kills the script and waits until its attach daemons have gone; false on timeout.
bool end_script(Process& script);

}  // namespace dlock::test
