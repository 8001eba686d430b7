#pragma once

#include <string>
#include <vector>

#include "base/fd.hpp"
#include "lock/lease_renewer.hpp"
#include "lock/store.hpp"
#include "supervise/watched_process.hpp"

namespace dlock {

// The messages between the two sides of an AttachDaemon. "lost": a lock was lost, or the daemon
// releases them, or has released them. An error has its kind, one byte, and its line: the daemon
// has released the locks then, too.
inline constexpr char daemon_keeps[] = "keeps";
inline constexpr char daemon_lost[] = "lost";
inline constexpr char daemon_error[] = "error ";
inline constexpr char daemon_commit[] = "commit";
inline constexpr std::size_t longest_daemon_message = 4096;

/// How long the locks may be tried to be given back while somebody waits for it.
inline constexpr milliseconds time_to_give_back{2000};

/// The whole life of the forked child, which ends with the process.
[[noreturn]] void run_attach_daemon(StorePtr store, const std::vector<Held>& held,
                                    const WatchedProcess& script, int loss_signal, Fd channel);

}  // namespace dlock
