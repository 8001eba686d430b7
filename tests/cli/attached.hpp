#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "cli/place.hpp"

namespace dlock::test {

/// The processes that `acquire --attach` left behind for process `pid` and that have not ended.
std::vector<pid_t> keepers_of(pid_t pid);

/// Waits until there is none.
bool keepers_leave(pid_t pid);

/// Waits until the lease of `key`, on a server, has been renewed twice; whether it was.
bool is_renewed_twice(const Place& place, const std::string& key);

/// A shell that has done `first` and then `T=$(dlock acquire OPTIONS --attach $$)`, has written
/// "in", and goes on to `then`, which sees $D and $T.
Process attached(const Place& place, const std::string& options,
                 const std::string& then = "exec sleep 60", const std::string& first = ":");

/// Kills it, and waits until its keepers have gone, too; whether they went.
bool end_script(Process& script);

}  // namespace dlock::test
