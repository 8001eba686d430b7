#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/wait.hpp"
#include "lock/store.hpp"
#include "quorum/hold_state.hpp"
#include "quorum/nodes.hpp"

namespace dlock {

/// Locks on several independent servers, decided by a majority of them (Redlock:
/// https://redis.io/docs/latest/develop/use/patterns/distributed-locks/), with fencing tokens that
/// grow over all of them. The store asks all servers at once. It answers as soon as enough of them
/// agree or no longer can, and reads the other replies later or never.
///
/// The fence: each node grants F = max(F + 1, p), where p is the median of the nodes' clocks. Let t
/// be the largest fence that some sufficient set of nodes has granted. The other nodes of the set
/// raise theirs to t if the hold still lives there and F <= t. The lock is acquired when enough
/// nodes store t at a moment at which their leases last. tests/model has the proof.
///
/// The order: a waiter's ticket is the median of the nodes' clocks at its first request, the same
/// at all nodes. Until an answer has told a clock, p is this host's wall clock, and there is no
/// ticket.
///
/// The exchanges with the nodes that a grant takes: usually one, also for a hand-over, where
/// messages contain the fence and the confirmation raises it; two if the votes differ in the fence.
/// A claim is admitted once enough nodes have granted it, each by an answer or a message. The
/// exchange whose answer admits the claim counts, and so does each later one until enough nodes
/// have confirmed that they store its fence.
class QuorumStore final : public Store, public FenceRegister {
 public:
  /// `caveat`: what the user should know of these nodes; the first of take_troubles().
  explicit QuorumStore(std::unique_ptr<NodeClients> nodes, std::string caveat = "")
      : nodes_(std::move(nodes)), caveat_(std::move(caveat)) {}
  ~QuorumStore() override;
  QuorumStore(const QuorumStore&) = delete;
  QuorumStore& operator=(const QuorumStore&) = delete;

  Answer acquire(const Claim& claim, const Ask& asked, const CallOptions& call_options) override;
  bool waiter_asks_again() const override { return true; }
  Wake sleep(const Claim& claim, Deadline until, int cancel_fd) override;
  Renewed renew(const Claim& claim, const RenewalOptions& terms,
                const CallOptions& call_options) override;
  ReleaseResult release(const Claim& claim, const ReleaseOptions& how,
                        const CallOptions& call_options) override;
  std::vector<Holder> evict(const LockKey& key, const Eviction& how,
                            const CallOptions& call_options) override;
  std::vector<KeyState> inspect(const Query& query, const CallOptions& call_options) override;
  /// A fence is recorded once a majority has it, because any other majority shares a server with
  /// that one.
  Fence record_max(const LockKey& resource, Fence fence, const CallOptions& call_options) override;
  /// A resting store stays connected, because messages of the nodes announce a waiter's turn.
  void suspend(Suspension why) override;
  std::vector<int> connections() const override { return nodes_.connections(); }
  std::vector<Error> take_troubles() override;
  std::string name() const override;

 private:
  static constexpr Backoff first_pauses{milliseconds(10), milliseconds(1000)};

  QuorumHold& hold_of(const Claim& claim, bool is_complete);
  bool take_ticket(QuorumHold& hold) const;
  void ask_for_votes(QuorumHold& hold, const Ask& ask, Deadline deadline);
  std::optional<Grant> await_decision(QuorumHold& hold, const CallOptions& call_options);
  std::optional<Grant> decide(QuorumHold& hold, Deadline deadline);
  bool stragglers_are_late(const QuorumHold& hold, std::optional<Deadline>& straggle_until);
  Answer refused_answer(QuorumHold& hold, const Ask& ask, bool for_good);
  Refusal split_vote_refusal(const QuorumHold& hold);
  void release_votes(QuorumHold& hold);

  Nodes nodes_;
  std::string caveat_;
  std::map<std::pair<LockKey, Token>, QuorumHold> holds_;
  Backoff pauses_ = first_pauses;  ///< between tries to win a vote
};

}  // namespace dlock
