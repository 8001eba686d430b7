#include "base/error.hpp"
#include "quorum/quorum_store.hpp"

namespace dlock {

Fence QuorumStore::record_max(const LockKey& resource, Fence fence,
                              const CallOptions& call_options) {
  Fence largest = fence;
  std::size_t recorded = 0;
  const auto enough = [&](const Answers& answers) {
    recorded = 0;
    for (const auto& heard : answers) {
      const auto* said = heard ? std::get_if<Fence>(&heard->response) : nullptr;
      if (said == nullptr) continue;
      if (*said == fence) ++recorded;
      largest = std::max(largest, *said);
    }
    return largest > fence || recorded >= majority();
  };
  const Answers answers =
      poll(FenceRecord{resource, fence}, call_options, left_until(call_options.deadline), enough);
  if (enough(answers)) return largest;
  no_majority(answers);
}

}  // namespace dlock
