#include "config/options.hpp"

#include <stdexcept>

namespace dlock {
namespace {

constexpr Commands run = only(Command::run);
constexpr Commands acquire = only(Command::acquire);
constexpr Commands renew = only(Command::renew);
constexpr Commands release = only(Command::release);
constexpr Commands inspect = only(Command::inspect);
constexpr Commands takers = run | acquire;
constexpr Commands doctor = only(Command::doctor);
constexpr Commands guard = only(Command::guard);
constexpr Commands latch = only(Command::latch);
constexpr Commands lockers_but_run = acquire | renew | release | inspect;
constexpr Commands lockers = run | lockers_but_run;
constexpr Commands all = lockers | doctor | guard | latch;
/// For a setting that is no flag of any command.
constexpr Commands none = 0;

constexpr Subcommand subcommand_table[] = {
    {Command::run, "run", "hold the lock while COMMAND runs"},
    {Command::acquire, "acquire", "acquire the lock and exit; prints a token"},
    {Command::renew, "renew", "extend the lease of an acquired lock"},
    {Command::release, "release", "release it, or evict its holders (--force)"},
    {Command::inspect, "inspect", "show holders, waiters and latches"},
    {Command::latch, "latch", "let a job wait until N others have arrived"},
    {Command::doctor, "doctor", "check whether a server is fit to hold locks"},
    {Command::guard, "guard", "run COMMAND unless its fencing token is old"},
};

const Option option_table[] = {
    {"key", 'k', "KEY", lockers | latch, &Flags::keys, "name of the lock; may be repeated"},
    {"count", 0, "N", latch, &Flags::count, "open: how many have to arrive, 1 to 1000000"},
    {"by", 0, "ID", latch, &Flags::by, "arrive: as ID, which counts once (default: new)"},
    {"state", 0, "FILE", guard, &Flags::state, "record the largest fencing token in FILE"},
    {"state-key", 0, "NAME", guard, &Flags::state_key, "record it as NAME where the locks are"},
    {"command", 'c', "STRING", run | guard, &Flags::command_string, "run STRING with /bin/sh -c"},
    {"nonblock", 'n', nullptr, takers | latch, &Flags::nonblock, "do not wait", nullptr, false,
     'w'},
    {"wait", 'w', "DUR", takers | latch, &Flags::wait, "wait at most DUR (default: for ever)",
     "DLOCK_WAIT", true, 'w', latch},
    {"latest", 0, nullptr, takers, &Flags::latest,
     "wait until a newer --latest waits, then exit 75"},
    {"shared", 's', nullptr, takers, &Flags::shared, "share the lock with all other -s (read lock)",
     nullptr, false, 'l'},
    {"exclusive", 'x', nullptr, takers, &Flags::exclusive, "hold it exclusively (default)", nullptr,
     false, 'l'},
    {"limit", 0, "N", takers, &Flags::limit, "let at most N holders in at once", nullptr, false,
     'l'},
    {"ttl", 't', "DUR", takers | renew | doctor | latch, &Flags::ttl,
     "lease: freed this long after dlock dies (30s)", "DLOCK_TTL", true, 0, renew | latch},
    {"attach", 0, "PID", acquire, &Flags::attach, "renew until PID ends, then release (-t 30s)"},
    {"conflict-exit-code", 'E', "N", run, &Flags::conflict_exit_code,
     "exit with N, not 75, if not acquired in time"},
    {"grace", 0, "DUR", run, &Flags::grace, "time from SIGTERM to SIGKILL, at most ttl/3",
     "DLOCK_GRACE", true},
    {"signal", 0, "SIG", takers, &Flags::signal, "send SIG, not SIGTERM: INT, SIGINT or 2"},
    {"max-hold", 0, "DUR", run, &Flags::max_hold, "stop COMMAND after DUR and exit 124"},
    {"min-hold", 0, "DUR", run, &Flags::min_hold, "keep the key taken for DUR at least (cron)"},
    {"wait-tree", 0, nullptr, run, &Flags::wait_tree, "hold until all descendants of COMMAND exit"},
    {"on-lost", 0, "ACTION", run, &Flags::on_lost, "stop COMMAND (default), or ignore the loss"},
    {"watchdog", 0, nullptr, run, &Flags::watchdog,
     "a second process stops COMMAND if dlock cannot"},
    {"status-fd", 0, "N", run, &Flags::status_fd, "write the outcome to descriptor N, as JSON"},
    {"metrics", 0, "FILE", run, &Flags::metrics_file, "write the outcome to FILE, for Prometheus"},
    {"hook", 0, "CMD", run, &Flags::hook, "on each change of the lock, call CMD by sh -c", nullptr,
     true},
    {"metrics", 0, nullptr, inspect, &Flags::metrics, "print metrics for Prometheus"},
    {"token", 0, "T", renew | release, &Flags::token, "the token that acquire printed",
     "DLOCK_TOKEN"},
    {"force", 0, nullptr, release, &Flags::force, "evict all holders; needs no token"},
    {"fence", 0, "N", release | guard, &Flags::fence, "fencing token of the holder (DLOCK_FENCE)",
     "DLOCK_FENCE", false, 0, release},
    {"reason", 0, "TEXT", release, &Flags::reason, "with --force: tell the evicted holders why"},
    {"json", 0, nullptr, lockers_but_run | doctor | latch, &Flags::json, "print JSON"},
    {"watch", 0, nullptr, inspect, &Flags::watch, "follow changes until ^C"},
    {"acl", 0, nullptr, doctor, &Flags::acl, "print the least rights that dlock's user needs"},
    {"schema", 0, nullptr, doctor, &Flags::schema, "create the table for locks in a database"},
    {"env", 0, nullptr, acquire, &Flags::env, "print DLOCK_TOKEN=..., DLOCK_FENCE=, DLOCK_OWNER="},
    {"replicas", 0, "N", takers | doctor, &Flags::replicas,
     "count a lock only when N replicas have it"},
    {"owner", 0, "ID", takers, &Flags::owner, "act as ID: all runs with ID share the lock"},
    {"label", 0, "TEXT", takers, &Flags::label, "shown to others, e.g. a build URL", "DLOCK_LABEL",
     true, 0, 0, true},
    {"compat", 0, "LAYOUT", lockers, &Flags::layouts,
     "share the locks of a library, e.g. redisson"},
    {"all-kinds", 0, nullptr, inspect, &Flags::all_kinds, "list locks of other libraries, too"},
    {"server", 0, "URL", all, &Flags::servers, "local:[/DIR], redis[s]://HOST, unix:///SOCKET, ...",
     "DLOCK_SERVER", true},
    {"password-file", 0, "F", all, &Flags::password_file, "", "DLOCK_PASSWORD_FILE", true},
    {"password", 0, "TEXT", none, {}, "", "DLOCK_PASSWORD", true},
    {"tls-ca", 0, "FILE|DIR", all, &Flags::tls_ca, "", "DLOCK_TLS_CA", true},
    {"tls-cert", 0, "FILE", all, &Flags::tls_cert, "", "DLOCK_TLS_CERT", true},
    {"tls-key", 0, "FILE", all, &Flags::tls_key, "", "DLOCK_TLS_KEY", true},
    {"tls-server-name", 0, "NAME", all, &Flags::tls_server_name, "", "DLOCK_TLS_SERVER_NAME", true},
    {"sentinel-user", 0, "USER", all, &Flags::sentinel_user, "", "DLOCK_SENTINEL_USER", true},
    {"sentinel-password-file", 0, "F", all, &Flags::sentinel_password_file, "",
     "DLOCK_SENTINEL_PASSWORD_FILE", true},
    {"prefix", 0, "STR", all, &Flags::prefix, "", "DLOCK_PREFIX", true},
    {"config", 0, "FILE", all, &Flags::config, "", "DLOCK_CONFIG"},
    {"", 'q', nullptr, all, &Flags::quiet, "print only errors"},
    {"verbose", 'v', nullptr, all, &Flags::verbose, "explain each step"},
    {"help", 'h', nullptr, all, &Flags::help, "print this help"},
    {"version", 'V', nullptr, all, &Flags::version, "print the version"},
};

/// Other spellings, of a letter ("e") or of a long name.
struct Alias {
  std::string_view spelled;
  std::string_view means;
};
constexpr Alias alias_table[] = {{"nb", "nonblock"}, {"e", "exclusive"}};

}  // namespace

std::span<const Subcommand> subcommands() { return subcommand_table; }

const Subcommand& subcommand(Command command) {
  for (const Subcommand& each : subcommand_table) {
    if (each.command == command) return each;
  }
  throw std::logic_error("no such command");
}

std::string Option::shown() const {
  return *name == '\0' ? std::string("-") + letter : std::string("--") + name;
}

std::span<const Option> options() { return option_table; }

const Option* find_option(std::string_view name) {
  for (const Alias& alias : alias_table) {
    if (alias.spelled == name && name.size() > 1) name = alias.means;
  }
  for (const Option& each : option_table) {
    if (name == each.name && !name.empty() && each.commands != none) return &each;
  }
  return nullptr;
}

const Option* find_option(std::string_view name, Command command) {
  const Option* found = find_option(name);
  if (found == nullptr) return nullptr;
  for (const Option& each : option_table) {
    if (std::string_view(each.name) == found->name && each.belongs_to(command)) return &each;
  }
  return found;
}

const Option* find_option(char letter) {
  for (const Alias& alias : alias_table) {
    if (alias.spelled == std::string_view(&letter, 1)) return find_option(alias.means);
  }
  for (const Option& each : option_table) {
    if (each.letter == letter) return &each;
  }
  return nullptr;
}

const Option& option(std::string_view name) {
  for (const Option& each : option_table) {
    if (name == each.name) return each;
  }
  throw std::logic_error("no such option");
}

std::vector<std::string> aliases_of(const Option& option) {
  std::vector<std::string> spellings;
  for (const Alias& alias : alias_table) {
    const std::string dashes = alias.spelled.size() == 1 ? "-" : "--";
    if (alias.means == option.name) spellings.push_back(dashes + std::string(alias.spelled));
  }
  return spellings;
}

}  // namespace dlock
