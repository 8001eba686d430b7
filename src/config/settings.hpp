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

/// What `run` does with COMMAND when the lock is lost.
enum class OnLost { stop, ignore };

/// What `latch` does.
enum class LatchVerb { open, arrive, wait };

/// What all commands have: what goes to stderr, and the server they talk to.
struct ServerSettings {
  bool quiet = false;
  bool verbose = false;
  std::vector<std::string> warnings;  ///< one line each, for stderr; no password in them

  Target server = LocalTarget{};
  bool server_is_default = false;  ///< nothing was configured: `local:` is used, people are told
  std::string prefix = "dlock:";   ///< of every Redis key and channel
};

/// Of run, acquire, renew, release and inspect: which locks.
struct LockSettings : ServerSettings {
  std::vector<LockKey> keys;  ///< as the user named them, doubles dropped
  /// The keys are those of another library; the server is a Redis then, and nothing is asked for
  /// that the layout has no room for.
  std::optional<Layout> layout;
};

/// Of run and acquire: how to acquire them.
struct ClaimSettings : LockSettings {
  std::optional<milliseconds> wait;  ///< zero: do not wait; nothing: for ever
  bool latest = false;               ///< never with a `wait` of zero
  Limit limit = exclusive;
  milliseconds ttl{0};
  std::optional<Owner> owner;  ///< --owner: be exactly this one, whatever `above` says
  std::optional<Owner> above;  ///< DLOCK_OWNER
  std::string label;
  int stop_signal = 0;  ///< to COMMAND, or to the process of `attach`
  int replicas = 0;     ///< how many must have a lock before it counts
};

struct RunSettings : ClaimSettings {
  std::vector<std::string> command_argv;  ///< with -c: /bin/sh -c STRING
  std::optional<int> conflict_exit_code;
  milliseconds grace{0};
  std::optional<milliseconds> max_hold;
  std::optional<milliseconds> min_hold;
  bool wait_tree = false;
  OnLost on_lost = OnLost::stop;
  bool watchdog = false;
  std::optional<int> status_fd;
  std::optional<std::string> metrics_file;
  std::optional<std::string> hook;  ///< for /bin/sh -c
};

struct AcquireSettings : ClaimSettings {
  std::optional<pid_t> attach;  ///< a positive number, not looked at yet
  bool json = false;
  bool env = false;  ///< never with `json`
};

struct RenewSettings : LockSettings {
  Token token;
  std::optional<milliseconds> ttl;  ///< nothing: that of the grant
  bool json = false;
};

struct ReleaseSettings : LockSettings {
  /// Nothing with `force`. It is empty where a script passes on what an acquire printed that
  /// failed.
  std::optional<Token> token;
  bool force = false;
  std::vector<std::string> patterns;  ///< with `force`: globs of keys
  std::optional<Fence> fence;         ///< with `force`: only the holder with this one
  std::string reason;                 ///< with `force`: why, for those evicted
  bool json = false;
};

struct InspectSettings : LockSettings {
  std::vector<std::string> patterns;  ///< globs; `*` if neither key nor glob was given
  bool json = false;
  bool watch = false;      ///< never with `quiet`
  bool metrics = false;    ///< never with `json` or `watch`
  bool all_kinds = false;  ///< locks of other libraries, too; `patterns` meet whole names in Redis
};

struct LatchSettings : ServerSettings {
  LatchVerb verb = LatchVerb::wait;
  LockKey key;
  std::int64_t count = 0;            ///< of `open`
  milliseconds ttl{0};               ///< of `open`
  std::optional<ArrivalId> by;       ///< of `arrive`; nothing: somebody new
  std::optional<milliseconds> wait;  ///< of `wait`, as that of a claim
  bool json = false;
};

struct DoctorSettings : ServerSettings {
  milliseconds ttl{0};
  int replicas = 0;
  bool json = false;  ///< at most one of these
  bool acl = false;
  bool schema = false;
};

struct GuardSettings : ServerSettings {
  std::vector<std::string> command_argv;  ///< as that of run
  Fence fence;
  // Either:
  std::optional<std::string> state;  ///< a file; then `server` means nothing
  std::optional<LockKey> state_key;
};

/// Everything one command is to do: validated, and constant once resolve() has made it.
using Settings = std::variant<RunSettings, AcquireSettings, RenewSettings, ReleaseSettings,
                              InspectSettings, LatchSettings, DoctorSettings, GuardSettings>;

/// The variable of this name, if it is set. Tests bring their own.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// The environment of this process.
Environment process_environment();

/// Flag > variable > configuration file > default, for what `line.command` has; other settings are
/// not looked at, unknown names in a file always are. A bad value is an error even where a better
/// place overrides it: Error{usage} from the command line or the environment, Error{configuration}
/// from a file; the message begins with the place (`--ttl`, `DLOCK_TTL`, `FILE:LINE: ttl`).
///
/// TLS settings in variables and files count for `rediss` URLs alone; as flags they are refused
/// with others, as are those for sentinels.
///
/// The password of a Redis server: `--password-file` or `--password-command`, else the one in the
/// URL (it belongs to that URL, wherever that stands), else DLOCK_PASSWORD_FILE or
/// DLOCK_PASSWORD_COMMAND, DLOCK_PASSWORD, REDISCLI_AUTH, else `password-file`, `password-command`
/// or `password` of the user's configuration file, else of the system's.
Settings resolve(const CommandLine& line, const Environment& environment,
                 const std::string& system_file = "/etc/dlock.conf");

}  // namespace dlock
