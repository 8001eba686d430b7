#include "quorum/quorum_fence_register.hpp"

#include <algorithm>

namespace dlock {

Fence QuorumFenceRegister::record_max(const LockKey& resource, Fence fence,
                                      const CallOptions& call_options) {
  Fence largest = fence;
  std::size_t recorded = 0;
  const auto enough = [&](const Nodes::Answers& answers) {
    recorded = 0;
    for (const auto& heard : answers) {
      const auto* said = heard ? std::get_if<Fence>(&heard->response) : nullptr;
      if (said == nullptr) continue;
      if (*said == fence) ++recorded;
      largest = std::max(largest, *said);
    }
    return largest > fence || recorded >= nodes_.majority();
  };
  const auto answers = nodes_.poll(FenceRecord{resource, fence}, call_options,
                                   left_until(call_options.deadline), enough);
  if (enough(answers)) return largest;
  nodes_.throw_no_majority_of(answers);
}

}  // namespace dlock
