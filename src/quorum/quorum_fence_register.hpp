#pragma once

#include "lock/store.hpp"
#include "quorum/nodes.hpp"

namespace dlock {

/// The largest fence of a resource, on several servers. It is recorded once a majority has it: any
/// other majority shares a server with that one, which tells of it.
class QuorumFenceRegister : public FenceRegister {
 public:
  explicit QuorumFenceRegister(Nodes& nodes) : nodes_(nodes) {}

  Fence record_max(const LockKey& resource, Fence fence, const CallOptions& call_options) final;

 private:
  Nodes& nodes_;
};

}  // namespace dlock
