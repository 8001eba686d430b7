#include "base/error.hpp"
#include "base/escape.hpp"
#include "redis/record_max_script.hpp"
#include "redis/redis_store.hpp"
#include "redis/script_answer.hpp"

namespace dlock {

Fence RedisStore::record_max(const LockKey& resource, Fence fence,
                             const CallOptions& call_options) {
  const std::string key = KeyNames(terms_.prefix, resource).fence_register;
  // By its text: asked once in a process, it is shorter than a second round trip.
  const ScriptRun script{.text = record_max_script,
                         .sha1 = record_max_script_sha1,
                         .keys = {key},
                         .arguments = {std::to_string(fence.value)},
                         .by_text = true};
  const ScriptReply reply = servers_->run_script(script, call_options);
  check(resource, reply);
  if (reply.kind != Reply::Kind::array) unexpected_answer();
  if (!reply.items.empty()) {
    const Fence largest{server_number(word(reply, 0), largest_fence)};
    if (largest < fence) unexpected_answer();
    return largest;
  }
  throw Error(ErrorKind::wrong_data,
              reply.link.client->name() + ": the key " + escaped(key) +
                  " holds something else than the fence of a guard: it is left as it is");
}

}  // namespace dlock
