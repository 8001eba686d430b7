#pragma once

#include "lock/claim.hpp"
#include "lock/grant.hpp"
#include "lock/store.hpp"

namespace dlock {

/// No fence is larger: what is, no double holds exactly, and none of ours ever was.
constexpr std::int64_t largest_fence = (1LL << 53) - 1;

/// Servers that remember for a resource the largest fence that came to it: the resource's side of
/// fencing, for `guard`.
class FenceRegister {
 public:
  virtual ~FenceRegister() = default;

  /// Records `fence` unless a larger one is there; the larger of both. Never forgotten by itself,
  /// and may be repeated. Throws Error{wrong_data} where something else is in its place.
  virtual Fence record_max(const LockKey& resource, Fence fence,
                           const CallOptions& call_options) = 0;
};

}  // namespace dlock
