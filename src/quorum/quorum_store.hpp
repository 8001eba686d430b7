#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/duplicate_servers.hpp"
#include "lock/fence_register.hpp"
#include "lock/store.hpp"
#include "quorum/latch_views.hpp"
#include "quorum/node_clients.hpp"
#include "quorum/quorum_hold.hpp"
#include "quorum/server_clocks.hpp"

namespace dlock {

/// Locks on several independent servers of which a majority decides (Redlock:
/// https://redis.io/docs/latest/develop/use/patterns/distributed-locks/), with fencing tokens that
/// grow over all of them. All are asked at once; an answer is out as soon as enough of them agree
/// or no longer can, and what the others have to say is heard later or never.
///
/// The fence: each member grants F = max(F + 1, p), p being the median of their clocks. t, the
/// largest of those that some members which are enough have granted, is raised on the others of
/// them where the hold still lives and F <= t. The lock is had when enough members store t, at a
/// moment at which their leases last. tests/model has the proof.
///
/// The order: a waiter's ticket is the median of their clocks when it asked first, the same at all
/// members. Until an answer has told a clock, p is our wall clock, and there is no ticket.
///
/// How many exchanges with the members a grant takes: a claim is let in once as many members as it
/// needs have granted it, each by an answer or by a message. What counts is the request whose
/// answer let it in, if that was an answer, and each request to a member from then on until that
/// many have said themselves that they store its fence. It is one as a rule, also for what is
/// handed over: the messages tell the fence, and what confirms it raises it. Where the answers to
/// votes differ in the fence, it is two.
///
/// A latch: an ID has arrived when a majority stores it, at a latch of the same generation.
/// Arriving only grows, so whoever reads a majority has all of them in the union, and writes back
/// what members lack before he says that it is open.
class QuorumStore final : public Store, public FenceRegister, public Latches {
 public:
  /// `doubles`: members that may be others of them under a second name. Once, and for a moment,
  /// their addresses and then they themselves are waited for before a lock is had: who names a
  /// server twice is to hear of it.
  explicit QuorumStore(std::unique_ptr<NodeClients> nodes,
                       std::shared_ptr<const DuplicateServers> doubles = nullptr);
  ~QuorumStore() override;
  QuorumStore(const QuorumStore&) = delete;
  QuorumStore& operator=(const QuorumStore&) = delete;

  Answer acquire(const Claim& claim, const Ask& asked, const CallOptions& call_options) override;
  Wake sleep(const Claim& claim, Deadline until, int cancel_fd) override;
  std::optional<Grant> renew(const LockKey& key, const Token& token,
                             std::optional<milliseconds> ttl,
                             const CallOptions& call_options) override;
  std::optional<Grant> renew_hold(const Claim& claim, Fence fence,
                                  const CallOptions& call_options) override;
  void renewed_by_other_connection(const Claim& claim) override;
  Released release(const LockKey& key, const Token& token, ReleaseMode mode,
                   const CallOptions& call_options) override;
  std::vector<Holder> evict(const LockKey& key, std::optional<Fence> fence, const Who& by,
                            const CallOptions& call_options) override;
  std::optional<Who> evicted_by(const LockKey& key, const Token& token) const override;
  std::vector<KeyState> inspect(const Query& query, const CallOptions& call_options) override;
  void before_fork() override;
  bool command_started(const Claim& claim, pid_t group) override;
  bool needs_renewal(const Claim&) const override { return true; }
  std::optional<QuorumMargin> margin(const Claim& claim) override;
  std::vector<Error> take_troubles() override;
  std::string name() const override;
  /// A fence is recorded once a majority has it: any other majority shares a server with that one,
  /// which tells of it.
  Fence record_max(const LockKey& resource, Fence fence, const CallOptions& call_options) override;

  LatchState open_latch(const LockKey& key, const LatchTerms& terms,
                        const CallOptions& call_options) override;
  std::optional<LatchState> arrive(const LockKey& key, const ArrivalId& id,
                                   const CallOptions& call_options) override;
  std::optional<LatchState> look_at_latch(const LockKey& key, bool listen,
                                          const CallOptions& call_options) override;
  Wake::Reason sleep_at_latch(const LockKey& key, Deadline until, int cancel_fd) override;

 private:
  using Name = std::pair<LockKey, Token>;
  /// What a member was asked last: what it says to anything before is not heard.
  struct Asked {
    std::uint64_t request = 0;  ///< 0: nothing is owed
    std::optional<Name> quorum_hold;
  };
  using Answers = std::vector<std::optional<NodeReply>>;

  QuorumHold& quorum_hold(const Name& name, const std::optional<Claim>& claim);
  Fence next_proposal() const;
  bool take_ticket(QuorumHold& quorum_hold) const;
  void ask(std::size_t member, const std::optional<Name>& name, NodeRequest request,
           Deadline deadline);
  void ask_for_votes(const Name& name, const Ask& ask, Deadline deadline);
  static bool comes_after(QuorumHold& quorum_hold);
  std::optional<Grant> settle(const Name& name, const CallOptions& call_options);
  bool others_have_said_enough(const QuorumHold& quorum_hold, std::optional<Deadline>& rest);
  std::optional<Grant> decided(const Name& name, Deadline deadline);
  Answer not_had(const Name& name, const Ask& ask);
  Refusal split(const Name& name);
  milliseconds next_pause(const LockKey& key);
  void give_votes_back(const Name& name);
  void rejoin(const Name& name);
  std::optional<Refusal> too_few_votes(const QuorumHold& quorum_hold) const;
  QuorumMargin margin_now(const QuorumHold& quorum_hold);
  /// Why a member does not count for a claim that was had, if there is a reason.
  std::optional<std::string> lack(const QuorumHold& quorum_hold, std::size_t member) const;

  std::optional<NodeReply> hear(Deadline until, int cancel_fd);
  void note(const NodeReply& heard);
  void note_news(const NodeReply& heard);
  void check_identity(NodeReply& heard);
  void note_trouble(const NodeReply& heard);
  void let_out(const QuorumHold& quorum_hold, const CallOptions& call_options);
  void hear_doubles(const QuorumHold& quorum_hold, const CallOptions& call_options);
  void refuse_doubles(const QuorumHold& quorum_hold) const;
  void refuse_shown(const DuplicateServers& doubles) const;
  Error one_server(std::size_t one, std::size_t other) const;
  /// No answers from those that owe one in time.
  void give_up_on(QuorumHold& quorum_hold);

  /// Asks all the same, until `enough`, or for `linger` more once a majority has answered.
  Answers poll(const NodeRequest& request, const CallOptions& call_options, milliseconds linger,
               const std::function<bool(const Answers&)>& enough);
  std::size_t majority() const { return nodes_->size() / 2 + 1; }
  [[noreturn]] void no_majority(const QuorumHold& quorum_hold) const;
  [[noreturn]] void no_majority(const Answers& answers) const;
  [[noreturn]] void no_majority(const LatchViews& views) const;

  /// Asks all the same about a latch, and hears what they say until that is `decided`, and what the
  /// rest has to say in a moment more.
  void hear_of_latch(LatchViews& views, const NodeRequest& request, const CallOptions& call_options,
                     const std::function<bool()>& decided);
  /// Hears what those say that were asked, and asks them for more, until it is `settled`.
  void settle_latch(LatchViews& views, const CallOptions& call_options,
                    const std::function<bool()>& settled);
  void take_latch(LatchViews& views, const NodeReply& heard, Deadline deadline);
  void ask_more_of_latch(LatchViews& views, Deadline deadline);
  /// How many members have an answer to give.
  std::size_t owing() const;

  std::unique_ptr<NodeClients> nodes_;
  std::map<Name, QuorumHold> quorum_holds_;
  std::vector<Asked> asked_;  ///< a member each
  ServerClocks clocks_;
  std::vector<bool> late_;  ///< who has let the others wait, and not answered since
  std::shared_ptr<const DuplicateServers> doubles_;  ///< nothing once they were waited for
  std::map<std::string, std::size_t> members_by_process_;
  std::map<std::size_t, Error> untold_;               ///< what a member said last that was wrong
  std::set<std::pair<std::size_t, ErrorKind>> told_;  ///< who, and what was told of
  std::map<LockKey, milliseconds> pauses_;
  std::map<Name, Who> evictions_;    ///< as some member told it
  std::optional<Name> waiting_;      ///< whose news the members send
  std::optional<Wake> news_;         ///< of a change, not taken yet
  std::optional<LatchViews> latch_;  ///< that was looked at last
  bool woken_ = false;               ///< by news of it, which no look has followed yet
};

}  // namespace dlock
