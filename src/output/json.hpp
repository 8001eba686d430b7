#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lock/acquire.hpp"
#include "lock/grant.hpp"
#include "lock/store.hpp"

namespace dlock {

/// One line of `inspect --all-kinds`: a holder of a lock of dlock or of another library.
struct KindRow {
  std::string key;
  std::string kind;
  Holder holder;

  std::string library() const { return holder.library.empty() ? "dlock" : holder.library; }
};

/// The row as `inspect --all-kinds --json` prints it: one object on one line.
std::string kind_json(const KindRow& row);

/// One key as `inspect --json` prints it: one object on one line.
std::string key_json(const KeyState& state);

/// An acquired key as `acquire --json` and --status-fd list it.
struct LockFence {
  LockKey key;
  Fence fence;
};

/// The output of `acquire --json`.
std::string grant_json(const Token& token, const Owner& owner, milliseconds ttl,
                       milliseconds waited, const std::vector<LockFence>& locks);

/// The same if the lock was not acquired; `reason` says why.
std::string refused_json(const GaveUp& gave_up, const std::string& reason);

/// The output of `renew --json` for a key.
std::string renewed_json(const LockKey& key, const Renewed& renewed);

/// The output of `release --json` for a key.
std::string released_json(const LockKey& key, bool released, const std::optional<Who>& evicted_by);

/// The output of `release --force --json` for a key.
std::string evicted_json(const LockKey& key, const std::vector<Holder>& evicted);

/// The output of `release --stop --json` for a key: the holders that will hear it, and the others.
std::string stop_json(const LockKey& key, const std::vector<Holder>& asked);

/// The output of `latch --json`.
std::string latch_json(const LockKey& key, const LatchState& state);

/// The result of `run`, written to --status-fd when `run` ends.
struct RunStatus {
  std::string outcome;  ///< exited, signalled, lost, max-hold, not-acquired, not-started,
                        ///< interrupted or error
  int exit_code = 0;
  std::optional<int> child_exit;
  std::optional<int> child_signal;
  std::string reason;  ///< empty if there is nothing to explain
  bool lost = false;
  std::optional<Who> evicted_by;
  std::optional<Who> stop_asked_by;
  std::optional<GaveUp> gave_up;  ///< of `not-acquired`
  std::vector<LockFence> locks;
  milliseconds waited{0};
  milliseconds held{0};
};

std::string status_json(const RunStatus& status);

}  // namespace dlock
