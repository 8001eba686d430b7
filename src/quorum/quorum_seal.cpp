#include "base/error.hpp"
#include "quorum/quorum_store.hpp"

namespace dlock {

Fence QuorumStore::seal(const LockKey& resource, Fence fence, const Patience& patience) {
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
      poll(Sealing{resource, fence}, patience, left_until(patience.deadline), enough);
  if (enough(answers)) return largest;
  no_majority(answers);
}

}  // namespace dlock
