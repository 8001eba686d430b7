#pragma once

#include <functional>
#include <optional>

#include "lock/latch.hpp"
#include "quorum/latch_views.hpp"
#include "quorum/nodes.hpp"

namespace dlock {

/// Latches on several servers: an ID has arrived when a majority stores it, at a latch of the same
/// generation. Arriving only grows, so a client that reads a majority has all of them in the union,
/// and writes back what nodes lack before it says that the latch is open.
class QuorumLatches : public Latches {
 public:
  explicit QuorumLatches(Nodes& nodes) : nodes_(nodes) {}

  LatchState open_latch(const LockKey& key, const LatchTerms& terms,
                        const CallOptions& call_options) final;
  std::optional<LatchState> arrive(const LockKey& key, const ArrivalId& id,
                                   const CallOptions& call_options) final;
  std::optional<LatchState> look_at_latch(const LockKey& key, bool listen,
                                          const CallOptions& call_options) final;
  Wake::Reason sleep_at_latch(const LockKey& key, Deadline until, int cancel_fd) final;

 private:
  void ask_all(const NodeRequest& request, Deadline deadline);
  /// Asks all the same about a latch, and hears what they say until that is `decided`, and what the
  /// rest has to say in a moment more.
  void ask_and_hear(LatchViews& views, const NodeRequest& request, const CallOptions& call_options,
                    const std::function<bool()>& decided);
  /// Hears what those say that were asked, and asks them for more, until it is `settled`.
  void hear_until(LatchViews& views, const CallOptions& call_options,
                  const std::function<bool()>& settled);
  void take(LatchViews& views, const NodeReply& reply, Deadline deadline);
  void ask_for_more(LatchViews& views, Deadline deadline);
  [[noreturn]] void no_majority(const LatchViews& views) const;

  Nodes& nodes_;
  std::optional<LatchViews> latch_;  ///< that was looked at last
  bool woken_ = false;               ///< by news of it, which no look has followed yet
};

}  // namespace dlock
