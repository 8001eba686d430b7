#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "support/redis_server.hpp"
#include "support/scene.hpp"

namespace dlock::test {

/// A holder of `key`, with a ttl of 15 s, until the file `go` is there; and ten who wait for it, in
/// order. What they do stands in the scene's log and in its file `fences`.
struct Line {
  Line(const Scene& scene, const std::string& key);

  Process holder;
  std::vector<Process> queue;
};

/// Each of them had it once, in order, with growing fences, and never two at once.
void was_served_in_order(const Scene& scene, Line& line);

/// Returns just after a renewal of the only hold of `key`.
void await_renewal(const RedisServer& server, const std::string& key);

/// Does `harm`, after which no renewal succeeds, just after a renewal of the only hold of `key`,
/// which must be of 6 s. Says when its lease then ends; nothing, and does no harm, where the
/// machine gave its holder no time to renew it.
std::optional<Deadline> lease_end_after(const std::function<void()>& harm,
                                        const RedisServer& server, const std::string& key);

}  // namespace dlock::test
