#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cas/cas_backend.hpp"
#include "cas/latch_record.hpp"
#include "cas/open_record.hpp"
#include "lock/grant.hpp"
#include "lock/latch.hpp"
#include "lock/store.hpp"

namespace dlock {

/// Locks, latches and fence registers as records of a CasBackend. Every request reads the record,
/// applies the rule, and writes the record back over the version that it read. If another client
/// was faster, it starts again from the new version. One thread uses it at a time.
class CasStore final : public Store, public FenceRegister, public Latches {
 public:
  /// The names of all records begin with `prefix`.
  CasStore(std::unique_ptr<CasBackend> backend, std::string prefix);
  /// Ends the lives of this store's waiters, because their leases would outlive the process.
  ~CasStore() override;
  CasStore(const CasStore&) = delete;
  CasStore& operator=(const CasStore&) = delete;

  Answer acquire(const Claim& claim, const Ask& ask, const CallOptions& call_options) override;
  Wake sleep(const Claim& claim, Deadline until, int cancel_fd) override;
  Renewed renew(const Claim& claim, const RenewalOptions& terms,
                const CallOptions& call_options) override;
  ReleaseResult release(const Claim& claim, const ReleaseOptions& how,
                        const CallOptions& call_options) override;
  std::vector<Holder> evict(const LockKey& key, std::optional<Fence> fence, const Who& by,
                            const CallOptions& call_options) override;
  std::vector<KeyState> inspect(const Query& query, const CallOptions& call_options) override;
  /// Closes the connection, because both sides of a fork would write to it. While the holder rests,
  /// it stays open if waiters watch for this client's departure.
  void suspend(Suspension why) override;
  std::string name() const override { return backend_->name(); }

  Fence record_max(const LockKey& resource, Fence fence, const CallOptions& call_options) override;

  LatchState open_latch(const LockKey& key, const LatchOptions& terms,
                        const CallOptions& call_options) override;
  std::optional<LatchState> arrive(const LockKey& key, const ArrivalId& id,
                                   const CallOptions& call_options) override;
  std::optional<LatchState> look_at_latch(const LockKey& key, bool listen,
                                          const CallOptions& call_options) override;
  Wake::Reason sleep_at_latch(const LockKey& key, Deadline until, int cancel_fd) override;

 private:
  using Asked = std::pair<LockKey, Token>;
  /// The leases of this store's own entry in a record.
  struct OwnLife {
    PlaceLease lease{};
    std::int64_t replaced = 0;  ///< the previous lease; the life may still be attached to it
    PlaceLease min_hold{};
    bool waits = false;
  };
  /// One change of a record.
  struct Change {
    const LockKey& key;
    const Token& self;
    std::string channel{};           ///< to listen to from before the first read; empty: none
    std::optional<Snapshot> over{};  ///< begin with this instead of a read
    bool departs = false;            ///< as in Update
    OwnLife* life = nullptr;         ///< of `self`: begun or renewed together with the first read
    bool names_connection = false;   ///< as in Update
    CallOptions call_options;
    bool joins = false;  ///< the client joins the queue
  };
  /// Applies the change to the record. `unsure`: an earlier write of the same change may have been
  /// done. Returns true if the record must be written even if it is unchanged.
  using Try = std::function<bool(OpenRecord& record, bool unsure)>;

  /// Tries until a write succeeds, or none is needed. Returns the record after that, with the clock
  /// and `sent` of the last read.
  Snapshot change(const Change& how, const Try& attempt);
  static CallOptions of_a_read(const CallOptions& call_options);
  void await_turn(const Claim& claim, const CallOptions& call_options) const;
  void check_room(const OpenRecord& record, const LockKey& key, std::size_t bytes) const;
  /// The same for any record: `make` returns the new content, or nothing to leave the record.
  Snapshot rewrite(const std::string& name, const std::string& channel, Snapshot seen,
                   const CallOptions& call_options,
                   const std::function<std::optional<Update>(const Snapshot&, bool unsure)>& make,
                   bool joins = false);

  std::string lock_record(const LockKey& key) const { return prefix_ + "k:" + key.text; }
  std::string latch_record(const LockKey& key) const { return prefix_ + "latch:" + key.text; }
  std::string arrivals_at(const LatchRecord& latch) const;
  std::string latch_channel(const LockKey& key) const;
  std::optional<Snapshot> last_written(const Claim& claim, ReleaseMode mode) const;
  void sweep(const std::string& prefix, const std::string& after, const CallOptions& call_options);
  void sweep_sometimes(const LockKey& key, const CallOptions& call_options);
  void sweep_arrivals(const CallOptions& call_options);

  Snapshot first_read(const Change& how, const std::string& name);
  void keep_life(OpenRecord& record, const Snapshot& seen, const Change& how, Update& update);
  void begin_min_hold(OpenRecord& record, const Snapshot& seen, const Change& how, Update& update);
  void take_lease(OwnLife& life, const PlaceLease& granted);
  std::optional<Snapshot> adopt_lease(const LockKey& key, const Token& token, OwnLife& life,
                                      const CallOptions& call_options);
  /// The lease of a grant: by the engine's clock in `seen`, or by the lease of its life.
  Lease lease_from(const Snapshot& seen, milliseconds length, const OwnLife* life) const;
  enum class LifeEnd { gone, for_certain, evicted };
  void end_lives(const Asked& asked, std::int64_t attached, LifeEnd why,
                 const CallOptions& call_options);
  void revoke_spare(OwnLife* life, const CallOptions& call_options);
  Wake await_lives(const Claim& claim, Deadline until, int cancel_fd);
  Wake granted_by_life(const Claim& claim, Fence fence) const;
  WatchedLives lives_to_watch(const Claim& claim, const Snapshot& seen) const;
  void date_by_leases(LockTable& table, const OpenRecord& record, const Snapshot& seen,
                      const CallOptions& call_options) const;

  Wake poll(const Claim& claim, Deadline until, int cancel_fd);
  struct ToWatch {
    Watched client{};  ///< empty channel: there is no client to watch
    /// When to read the record as well: the lock may be handed over without this client's
    /// departure.
    std::optional<milliseconds> look_after{};
  };
  ToWatch to_watch(const Claim& claim, const Snapshot& seen, const std::string& in_vain) const;
  std::optional<Snapshot> read_for_waiters(const LockKey& key, const CallOptions& call_options);
  std::optional<Wake> look(const Claim& claim, const Snapshot& seen, Deadline until,
                           milliseconds& pause) const;
  std::optional<Wake> wake_from(std::string_view message, const Claim& claim) const;

  KeyState state_from(const LockKey& key, const Snapshot& seen,
                      const CallOptions& call_options) const;
  LatchState latch_state(const LatchRecord& latch, const Snapshot& seen,
                         const CallOptions& call_options);
  std::optional<LatchState> latch_of(const LockKey& key, const CallOptions& call_options);
  std::vector<KeyState> matching_locks(const Query& query, const CallOptions& call_options);
  void add_matching_latches(std::vector<KeyState>& states, const Query& query,
                            const CallOptions& call_options);

  std::unique_ptr<CasBackend> backend_;
  CasLeases* const leases_;  ///< of the backend; null: the engine has a clock
  const std::string prefix_;
  std::string channel_;              ///< of this store's waiters; a new one after each departure
  std::set<Asked> unanswered_;       ///< acquires whose write may still be done
  std::map<LockKey, Snapshot> own_;  ///< the records as this store last wrote them
  std::map<Asked, OwnLife> lives_;   ///< those that this store has begun or renewed
  std::vector<std::int64_t> spare_;  ///< leases without lives, to be revoked
  Snapshot last_answer_;             ///< to a waiter; dates messages, and names the one before it
};

}  // namespace dlock
