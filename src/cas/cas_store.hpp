#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cas/cas_backend.hpp"
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
  std::vector<Holder> evict(const LockKey& key, const Eviction& how,
                            const CallOptions& call_options) override;
  std::vector<KeyState> inspect(const Query& query, const CallOptions& call_options) override;
  /// Closes the connection, because both sides of a fork would write to it. For a rest, the
  /// connection stays open if it shows the engine or the waiters that the client is alive.
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
  /// This store's own entry in a record, as far as the store knows it.
  struct OwnEntry : OwnLife {
    bool unanswered = false;    ///< the write of an acquire may still be done
    std::int64_t replaced = 0;  ///< the previous lease; the life may still be attached to it
    EngineLease min_hold{};
  };
  /// One change of a record.
  struct Change {
    const LockKey& key;
    const Token& self;
    CallOptions call_options;
    OwnEntry* own = nullptr;         ///< of `self`; the first read shows others that it lives
    std::optional<Snapshot> over{};  ///< begin with this instead of a read
    std::string departs{};  ///< the life of a client that gives up its hold or its position
    bool joins = false;     ///< the client joins the queue
  };
  /// Applies the change to the record. `unsure`: an earlier write of the same change may have been
  /// done. Returns true if the record must be written even if it is unchanged.
  using Try = std::function<bool(OpenRecord& record, bool unsure)>;
  /// Returns the new content of a record, or nothing to leave it.
  using Make = std::function<std::optional<Update>(const Snapshot& seen, bool unsure)>;

  /// Tries until a write succeeds, or none is needed. Returns the record after that, with the clock
  /// and `sent` of the last read.
  Snapshot change(const Change& how, const Try& attempt);
  /// Like change(), but for any record, and beginning with `seen`.
  Snapshot rewrite(const std::string& name, Snapshot seen, const CallOptions& call_options,
                   const Make& make, OwnLife* own = nullptr, bool joins = false);
  Snapshot read(const std::string& name, const CallOptions& call_options) const;
  OpenRecord open(const LockKey& key, const Token& self, const Snapshot& seen) const;
  Snapshot first_read(const Change& how, const std::string& name);
  void await_turn(const Claim& claim, const CallOptions& call_options) const;

  std::string lock_record(const LockKey& key) const { return prefix_ + "k:" + key.text; }
  std::string latch_record(const LockKey& key) const { return prefix_ + "latch:" + key.text; }
  std::string arrivals_at(const LatchRecord& latch) const;
  std::optional<Snapshot> last_written(const Claim& claim, ReleaseMode mode) const;
  std::optional<Snapshot> dated_anew(const LockKey& key) const;
  void sweep(const std::string& prefix, const std::string& after, const CallOptions& call_options);
  void sweep_arrivals(const CallOptions& call_options);

  void begin_life(OpenRecord& record, const Snapshot& seen, const Change& how, Update& update);
  void keep_lease(OpenRecord& record, const Snapshot& seen, const Change& how, Update& update);
  void begin_min_hold(OpenRecord& record, const Snapshot& seen, const Change& how, Update& update);
  void take_lease(OwnEntry& own, const EngineLease& granted);
  /// The lease of a grant: it counts from the request of `seen`; with CasLeases, it is the lease of
  /// `own`.
  Lease lease_from(const Snapshot& seen, milliseconds length, const OwnLife& own) const;
  enum class LifeEnd { gone, for_certain, evicted };
  void end_life(const Asked& asked, std::int64_t attached, LifeEnd why,
                const CallOptions& call_options);
  void revoke_spare(OwnEntry* own, const CallOptions& call_options);

  RecordWatch watch_for(const Claim& claim, Deadline until) const;
  std::optional<Wake> look(const Claim& claim, Deadline until, int cancel_fd);
  std::optional<Wake> wake_from(std::string_view message, const Claim& claim) const;
  Wake granted_by_life(const Claim& claim, Fence fence) const;

  KeyState state_from(const LockKey& key, const Snapshot& seen,
                      const CallOptions& call_options) const;
  void date_by_leases(OpenRecord& record, const Snapshot& seen,
                      const CallOptions& call_options) const;
  LatchState latch_state(const LatchRecord& latch, const Snapshot& seen,
                         const CallOptions& call_options);
  std::map<LockKey, KeyState> matching(const Query& query, const CallOptions& call_options);

  std::unique_ptr<CasBackend> backend_;
  CasLeases* const leases_;  ///< of the backend; null: the engine has a clock
  const std::string prefix_;
  std::map<LockKey, Snapshot> own_;    ///< the records as this store last wrote them
  std::map<Asked, OwnEntry> entries_;  ///< those that this store has asked for
  std::vector<std::int64_t> spare_;    ///< leases without lives, to be revoked
  Snapshot last_answer_;               ///< to a waiter; dates messages, and says what to watch
};

}  // namespace dlock
