#pragma once

#include <string>

#include "lock/grant.hpp"
#include "lock/store.hpp"
#include "output/screen.hpp"

namespace dlock {

/// Sentences for users: each on one line, escaped, and without the prefix "dlock: ".

/// `backup.sh`, or `dlock: backup.sh, pid 4243` if the command is another process than `who.pid`.
/// `shown` is the escaped command.
std::string command_text(const Who& who, const std::string& shown);

/// `deploy@web1 pid 4242 (backup.sh)`, followed by `[label]` if there is one.
std::string who_text(const Who& who);

/// `nightly is held by deploy@web1 pid 4242 (backup.sh) for 1m01s, lease 24s left, 2 waiting`.
std::string refusal_text(const LockKey& key, const Refusal& refusal);

/// `, fence 12`; empty without a fence.
std::string fence_text(Fence fence);

/// The client that holds: as who_text() or, in the layout of another library, `a client of redis-py
/// on web1`.
std::string client_text(const Holder& holder);

/// `waiting 12s for nightly, place 2 of 3: deploy@web1 pid 4242 (backup.sh) for 1m01s, lease 24s
/// left [label]`, for one line of `screen`: a long key is shortened. If the line is too narrow for
/// this: `waiting 12s for nightly, 2/3; held 1m01s, lease 24s: deploy@web1`.
std::string waiting_text(const LockKey& key, const Refusal& refusal, milliseconds waited,
                         const Screen& screen);

/// The line for a wait in which the server does not answer.
std::string waiting_in_vain_text(const LockKey& key, milliseconds waited, const Screen& screen);

/// `nightly is not held by this token: …`, for a client that renews or releases.
std::string not_held_by_token_text(const LockKey& key, const std::optional<Who>& evicted_by);

/// `the holder of nightly before this was evicted by ...; it may still run for 20s`.
std::string predecessor_text(const LockKey& key, const Predecessor& predecessor);

/// `this token held only 1 of its 2 keys at SERVER: …`, for a client that names no keys.
std::string token_holds_text(std::size_t held, std::size_t keys, const std::string& where);

/// `lost nightly: REASON`.
std::string lost_text(const LockKey& key, const std::string& reason);

/// `2 of 4 have arrived`, and `build: 2 of 4 have arrived`.
std::string arrivals_text(const LatchState& state);
std::string latch_text(const LockKey& key, const LatchState& state);

/// Sentences for a client that continues `doing` something while its server does not answer, and
/// when it answers again.
std::string server_lost_text(const std::string& why, const std::string& doing);
std::string server_back_text(milliseconds away, const std::string& doing);

/// Why COMMAND could not be executed. `name` is its argv[0], `error` the errno of exec.
std::string exec_error_text(const std::string& name, int error);

/// `nightly is held on 3 of 5 servers, and 3 are needed: redis://db4: no answer; …`.
std::string margin_text(const LockKey& key, const QuorumMargin& margin);

}  // namespace dlock
