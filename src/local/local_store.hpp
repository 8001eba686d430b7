#pragma once

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "local/dead_holders.hpp"
#include "local/directory.hpp"
#include "local/wake_fifo.hpp"
#include "lock/latch.hpp"
#include "lock/store.hpp"
#include "rule/lock_table.hpp"

namespace dlock {

/// Locks and latches of this host, in the files of one directory, without a server or daemon. Every
/// request reads a key's table, updates it from the processes that are visible, applies the rules
/// and writes it back, all under the file's lock. A waiter listens at a FIFO and is woken through
/// it.
class LocalStore final : public Store, public HostView, public Latches {
 public:
  /// Throws Error{host_refused} if the directory cannot be used.
  explicit LocalStore(const DirectorySettings& settings);

  Answer acquire(const Claim& claim, const Ask& ask, const CallOptions& call_options) override;
  Wake sleep(const Claim& claim, Deadline until, int cancel_fd) override;
  Renewed renew(const Claim& claim, const RenewalOptions& terms,
                const CallOptions& call_options) override;
  ReleaseResult release(const Claim& claim, const ReleaseOptions& how,
                        const CallOptions& call_options) override;
  std::vector<Holder> evict(const LockKey& key, const Eviction& how,
                            const CallOptions& call_options) override;
  std::vector<KeyState> inspect(const Query& query, const CallOptions& call_options) override;
  HostView* host_view() override { return this; }
  std::string name() const override;

  bool command_started(const Claim& claim, pid_t group) override;
  bool live_with(const Claim& claim, pid_t pid) override;
  int news_fd() const override { return mailbox_.fd(); }
  void take_news() override { mailbox_.take(); }
  void leave_to(pid_t pid) override { mailbox_.leave_to(pid); }
  Fd changes() override;

  /// Removes files that nobody needs: those of keys that have been free for a week (they keep the
  /// fence until then), those of latches that expired that long ago, and FIFOs of killed processes.
  /// It checks only a few names. The store calls it after each request that has created a file, and
  /// so keeps the number of files in proportion to the keys in use.
  void collect_garbage() const;

  LatchState open_latch(const LockKey& key, const LatchOptions& terms,
                        const CallOptions& call_options) override;
  std::optional<LatchState> arrive(const LockKey& key, const ArrivalId& id,
                                   const CallOptions& call_options) override;
  std::optional<LatchState> look_at_latch(const LockKey& key, bool listen,
                                          const CallOptions& call_options) override;
  Wake::Reason sleep_at_latch(const LockKey& key, Deadline until, int cancel_fd) override;

 private:
  std::variant<Wake, QueueWatch> look(const Claim& claim, Deadline until, int cancel_fd);
  /// Changes the process or the command of a hold that lives by its process; false if the hold is
  /// gone.
  bool change_process(const Claim& claim, ProcessId HolderIdentity::*which, pid_t pid);
  std::map<LockKey, KeyState> matching_states(const std::vector<std::string>& globs,
                                              const CallOptions& call_options) const;

  Directory directory_;
  WakeFifo mailbox_;  ///< one for all claims of this store: a byte in it means "look again"
};

}  // namespace dlock
