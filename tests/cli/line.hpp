#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "support/scene.hpp"

namespace dlock::test {

/// A holder of `key` with a ttl of 15 s, until the file `go` exists, and ten waiters for it, in
/// order. Their actions are in the scene's log and in its file `fences`.
struct Line {
  Line(const Scene& scene, const std::string& key);

  Process holder;
  std::vector<Process> queue;
};

/// Checks that each waiter held it once, in order, with growing fences, and never two at once.
void was_served_in_order(const Scene& scene, Line& line);

/// Returns just after a renewal of the only hold of `key`.
void await_renewal(const RedisServer& server, const std::string& key);

/// Calls `harm`, which stops all renewals, just after a renewal of the only hold of `key`, which
/// must have a ttl of 6 s. Returns the end of its lease; nothing, without any harm, if the machine
/// gave its holder no time to renew it.
std::optional<Deadline> lease_end_after(const std::function<void()>& harm,
                                        const RedisServer& server, const std::string& key);

}  // namespace dlock::test
