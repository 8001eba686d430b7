#include "base/error.hpp"
#include "base/escape.hpp"
#include "redis/redis_store.hpp"
#include "redis/script_answer.hpp"
#include "redis/seal_script.hpp"

namespace dlock {

Fence RedisStore::record_max(const LockKey& resource, Fence fence,
                             const CallOptions& call_options) {
  const std::string key = KeyNames(terms_.prefix, resource).record_max;
  // By its text: asked once in a process, it is shorter than a second round trip.
  const Request script{"EVAL", std::string(seal_script), "1", key, std::to_string(fence.value)};
  Reply reply = read({script}, call_options).front();
  if (is_deposed(reply)) {
    close();
    reply = read({script}, call_options).front();
  }
  check(resource, reply);
  if (reply.kind != Reply::Kind::text) unexpected_answer();
  if (!reply.text.empty()) return Fence{server_number(reply.text, largest_fence)};
  throw Error(ErrorKind::wrong_data,
              name() + ": the key " + escaped(key) +
                  " holds something else than the fence of a guard: it is left as it is");
}

}  // namespace dlock
