#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/backoff.hpp"
#include "lock/store.hpp"
#include "quorum/hold_round.hpp"
#include "quorum/nodes.hpp"
#include "quorum/quorum_fence_register.hpp"
#include "quorum/quorum_hold.hpp"
#include "quorum/renewal_turns.hpp"

namespace dlock {

/// Locks on several independent servers, decided by a majority of them (Redlock:
/// https://redis.io/docs/latest/develop/use/patterns/distributed-locks/), with fencing tokens that
/// grow over all of them. The store asks all servers at once. It answers as soon as enough of them
/// agree or no longer can, and reads the other replies later or never.
///
/// The fence: each member grants F = max(F + 1, p), where p is the median of the members' clocks.
/// Let t be the largest fence that some sufficient set of members has granted. The other members of
/// the set raise theirs to t if the hold still lives there and F <= t. The lock is acquired when
/// enough members store t at a moment at which their leases last. tests/model has the proof.
///
/// The order: a waiter's ticket is the median of the members' clocks at its first request, the same
/// at all members. Until an answer has told a clock, p is this host's wall clock, and there is no
/// ticket.
///
/// The exchanges with the members that a grant takes: a claim is admitted once as many members as
/// it needs have granted it, each by an answer or by a message. The request whose answer admitted
/// it counts, if it was an answer, and so does each later request to a member until that many have
/// confirmed that they store its fence. Usually this is one exchange, also for a hand-over: the
/// messages tell the fence, and the confirmation raises it. If the votes differ in the fence, it is
/// two.
class QuorumStore final : public Store, public QuorumFenceRegister, private HoldListener {
 public:
  explicit QuorumStore(std::unique_ptr<NodeClients> nodes);
  ~QuorumStore() override;
  QuorumStore(const QuorumStore&) = delete;
  QuorumStore& operator=(const QuorumStore&) = delete;

  Answer acquire(const Claim& claim, const Ask& asked, const CallOptions& call_options) override;
  Wake sleep(const Claim& claim, Deadline until, int cancel_fd) override;
  Renewed renew(const Claim& claim, const RenewalTerms& terms,
                const CallOptions& call_options) override;
  ReleaseResult release(const Claim& claim, const ReleaseOptions& how,
                        const CallOptions& call_options) override;
  std::vector<Holder> evict(const LockKey& key, std::optional<Fence> fence, const Who& by,
                            const CallOptions& call_options) override;
  std::vector<KeyState> inspect(const Query& query, const CallOptions& call_options) override;
  /// A resting store keeps its links, because the nodes' messages announce a waiter's turn.
  void suspend(Suspension why) override;
  std::vector<Error> take_troubles() override;
  std::string name() const override;

 private:
  explicit QuorumStore(std::unique_ptr<Nodes> nodes);

  void on_reply(const HoldName& about, const NodeReply& reply) override;
  void on_overtaken(const HoldName& about, std::size_t node) override;
  void on_news(const NodeReply& reply) override;

  QuorumHold& quorum_hold(const HoldName& name, const std::optional<Claim>& claim);
  HoldRound round(const HoldName& name) { return {*nodes_, name, quorum_holds_.at(name)}; }
  QuorumHold& hold_to_renew(const Claim& claim, std::optional<Fence> granted);
  bool take_ticket(QuorumHold& quorum_hold) const;
  static bool comes_after(QuorumHold& quorum_hold);
  Answer not_had(const HoldName& name, const Ask& ask, bool for_good);
  void await_far_servers(Deadline deadline);
  std::vector<std::optional<std::vector<Holder>>> holders_said(const NodeRequest& request,
                                                               const CallOptions& call_options);
  Refusal split(const HoldName& name);
  milliseconds next_pause(const LockKey& key);
  void let_out(const QuorumHold& quorum_hold) const;
  static void refuse_misused(const QuorumHold& quorum_hold);

  std::unique_ptr<Nodes> nodes_;
  std::map<HoldName, QuorumHold> quorum_holds_;
  std::map<LockKey, Backoff> pauses_;
  RenewalTurns turns_;
  std::optional<HoldName> waiting_;  ///< the hold whose messages the nodes send
  std::optional<Wake> news_;         ///< a change, not taken yet
};

}  // namespace dlock
