#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.hpp"
#include "compat/layout.hpp"
#include "config/command_line.hpp"
#include "config/server_url.hpp"
#include "lock/claim.hpp"
#include "lock/grant.hpp"
#include "lock/latch.hpp"

namespace dlock {

enum class LatchVerb { open, arrive, wait };

/// The settings that every command has: how much it writes to stderr, and which server it uses.
struct ServerSettings {
  bool quiet = false;
  bool verbose = false;
  std::vector<std::string> warnings;  ///< one line each, for stderr; without passwords

  Target server = LocalTarget{};
  /// The place that names the server: `DLOCK_SERVER`, `/etc/dlock.conf:3`; empty: the command line,
  /// or nothing.
  std::string server_place{};
  /// The line of the host's file that names another server, if the user's file has named this one.
  std::string overridden_place{};
  bool server_is_default = false;  ///< no server was configured: `local:` is used, with a notice
  std::string prefix = "dlock:";   ///< of every key and channel on the server
  int replicas = 0;                ///< number of replicas that must have a lock before it counts
  std::optional<milliseconds> session_ttl;  ///< the ttl, which sets the timeout of a session
  /// The layout of another library's keys. The server is then a Redis, and the layout supports all
  /// that the other settings ask for.
  std::optional<Layout> layout;
};

/// The locks of run, acquire, renew, release and inspect.
struct LockSettings : ServerSettings {
  std::vector<LockKey> keys;  ///< as the user named them, without duplicates
};

/// How run and acquire acquire their locks.
struct ClaimSettings : LockSettings {
  std::optional<milliseconds> wait;  ///< zero: do not wait; nothing: for ever
  bool latest = false;               ///< never true with a `wait` of zero
  bool preempt = false;              ///< the same
  Limit limit = exclusive;
  milliseconds ttl{0};
  std::optional<Owner> owner;  ///< --owner: exactly this owner; `above` is ignored
  std::optional<Owner> above;  ///< DLOCK_OWNER
  std::string label;
  std::optional<std::string> hook;  ///< for /bin/sh -c
  int stop_signal = 0;              ///< for COMMAND, or for the process of `attach`
};

struct RunSettings : ClaimSettings {
  std::vector<std::string> command_argv;  ///< with -c: /bin/sh -c STRING
  std::optional<int> conflict_exit_code;
  milliseconds grace{0};
  std::optional<milliseconds> max_hold;
  std::optional<milliseconds> min_hold;
  bool wait_tree = false;
  bool stop_on_loss = true;  ///< false: COMMAND runs on after the loss of a lock
  bool watchdog = false;
  std::optional<int> status_fd;
  std::optional<std::string> metrics_file;
};

struct AcquireSettings : ClaimSettings {
  std::optional<WallTime> until;  ///< when the lease expires; `ttl` is the time from now to it
  std::optional<pid_t> attach;    ///< a positive number, not checked yet
  bool json = false;
  bool env = false;  ///< never true with `json`
};

/// Without keys, all keys of the token are renewed.
struct RenewSettings : LockSettings {
  Token token;
  std::optional<milliseconds> ttl;  ///< nothing: the ttl of the grant
  bool json = false;
};

/// Without keys, all keys of the token are released.
struct ReleaseSettings : LockSettings {
  /// Not set with `evict` or `stop`. Empty if a script passes on the output of an acquire that
  /// failed.
  std::optional<Token> token;
  bool evict = false;  ///< --force
  bool stop = false;   ///< --stop; never with `evict`
  // Only with one of these two:
  std::vector<std::string> patterns;  ///< globs of keys
  bool yes = false;                   ///< no question about the keys that the globs match
  std::optional<Fence> fence;         ///< only this holder
  std::string reason;                 ///< shown to the holders
  std::optional<milliseconds> wait;   ///< with `stop`: how long to wait for the holders to go
  std::optional<std::string> hook;    ///< for /bin/sh -c; not called with `evict` or `stop`
  bool json = false;
};

struct InspectSettings : LockSettings {
  std::vector<std::string> patterns;  ///< globs; `*` if neither keys nor globs were given
  bool json = false;
  bool watch = false;      ///< never with `quiet`
  bool metrics = false;    ///< never with `json` or `watch`
  bool free = false;       ///< patterns also list free keys that are remembered
  bool all_kinds = false;  ///< other libraries' locks, too; `patterns` match full Redis keys
};

struct LatchSettings : ServerSettings {
  LatchVerb verb = LatchVerb::wait;
  LockKey key;
  std::int64_t count = 0;            ///< of `open`
  milliseconds ttl{0};               ///< of `open`
  std::optional<ArrivalId> by;       ///< of `arrive`; nothing: a new one
  std::optional<milliseconds> wait;  ///< of `wait`, as in ClaimSettings
  bool json = false;
};

struct DoctorSettings : ServerSettings {
  milliseconds ttl{0};
  int expected_replicas = 0;  ///< the --replicas of the locks that the server shall hold
  bool json = false;          ///< at most one of these three is true
  bool acl = false;
  bool schema = false;
};

struct GuardSettings : ServerSettings {
  std::vector<std::string> command_argv;  ///< as in RunSettings
  Fence fence;
  // One of these is set:
  std::optional<std::string> state;  ///< a file; `server` is not used then
  std::optional<LockKey> state_key;
};

/// Everything that one command needs, validated; constant once resolve() has made it.
using Settings = std::variant<RunSettings, AcquireSettings, RenewSettings, ReleaseSettings,
                              InspectSettings, LatchSettings, DoctorSettings, GuardSettings>;

/// getenv(3), or that of a test.
using Environment = std::function<const char*(const char* name)>;

/// Resolves the settings of `line.command`: flag > variable > configuration file > default.
/// Settings of other commands are not checked, but unknown names in a file always are. A bad value
/// is an error even if a higher-precedence source overrides it: Error{usage} from the command line
/// or the environment, Error{configuration} from a file. The message begins with the source
/// (`--ttl`, `DLOCK_TTL`, `FILE:LINE: ttl`).
///
/// TLS settings in variables and files apply only to `rediss` and `etcds` URLs, settings for
/// sentinels only to URLs of sentinels; as flags both are refused with other URLs.
///
/// The password of a Redis server: `--password-file` or `--password-command`, else the one in the
/// URL (in whichever source the URL is given), else DLOCK_PASSWORD_FILE or
/// DLOCK_PASSWORD_COMMAND, DLOCK_PASSWORD, REDISCLI_AUTH, else `password-file`, `password-command`
/// or `password` of the user's configuration file, else of the system's.
Settings resolve(const CommandLine& line, const Environment& environment,
                 const std::string& system_file = "/etc/dlock.conf");

}  // namespace dlock
