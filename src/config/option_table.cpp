#include "config/option_table.hpp"

#include <stdexcept>

#include "config/server_url.hpp"

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
/// For a setting that is not a flag of any command.
constexpr Commands none = 0;

constexpr Subcommand subcommand_table[] = {
    {Command::run, "run", "hold the lock while COMMAND runs", Operands::command},
    {Command::acquire, "acquire", "acquire the lock and exit; prints a token", Operands::keys},
    {Command::renew, "renew", "extend the lease of an acquired lock", Operands::keys},
    {Command::release, "release", "release it; stop or evict its holders", Operands::patterns},
    {Command::inspect, "inspect", "show holders, waiters and latches", Operands::patterns},
    {Command::latch, "latch", "let a job wait until N others have arrived", Operands::verb},
    {Command::doctor, "doctor", "check whether a server is fit to hold locks", Operands::none},
    {Command::guard, "guard", "run COMMAND unless its fencing token is old", Operands::command},
};

constexpr OptionValue no_value(nullptr);
constexpr OptionValue a_number("N");
constexpr OptionValue a_duration("DUR");
constexpr OptionValue a_key("KEY", Completion::keys);
constexpr OptionValue a_file("FILE", Completion::files);
constexpr OptionValue a_secret("F", Completion::files);
constexpr OptionValue a_file_or_directory("FILE|DIR", Completion::files);
constexpr OptionValue a_process("PID", Completion::processes);
constexpr OptionValue a_signal("SIG", Completion::signals);
constexpr OptionValue an_action("ACTION", Completion::words, "stop ignore");
constexpr OptionValue on_or_off("on|off", Completion::words, "on off");
constexpr OptionValue a_layout("LAYOUT", Completion::layouts);
constexpr OptionValue a_url("URL", Completion::beginnings, beginnings_of_urls);

constexpr Option option_table[] = {
    {"key", 'k', a_key, lockers | latch, "name of the lock; may be repeated", nullptr, adds_up},
    {"count", 0, a_number, latch, "open: how many have to arrive, 1 to 1000000"},
    {"by", 0, "ID", latch, "arrive: as ID, which counts once (default: new)"},
    {"state", 0, a_file, guard, "record the largest fencing token in FILE"},
    {"state-key", 0, "NAME", guard, "record it as NAME where the locks are"},
    {"command", 'c', "STRING", run | guard, "run STRING with /bin/sh -c"},
    {"nonblock", 'n', no_value, takers | latch, "do not wait", nullptr, one_wait, 0, "--nb"},
    {"wait", 'w', a_duration, takers | latch | release, "wait at most DUR (default: for ever)",
     "DLOCK_WAIT", in_files | one_wait, latch | release},
    {"latest", 0, no_value, takers, "wait until a newer --latest waits, then exit 75"},
    {"preempt", 0, no_value, takers, "ask the present holders to stop, and wait"},
    {"shared", 's', no_value, takers, "share the lock with all other -s (read lock)", nullptr,
     one_limit},
    {"exclusive", 'x', no_value, takers, "hold it exclusively (default)", nullptr, one_limit, 0,
     "-e"},
    {"limit", 0, a_number, takers, "let at most N holders in at once", nullptr, one_limit},
    {"ttl", 't', a_duration, takers | renew | doctor | latch,
     "lease: freed this long after dlock dies (30s)", "DLOCK_TTL", in_files, renew | latch},
    {"until", 0, "TIME", acquire, "expires at 17:00 or 2026-11-29T17:00[Z|+01:00]"},
    {"attach", 0, a_process, acquire, "renew until PID ends, then release (-t 30s)"},
    {"conflict-exit-code", 'E', a_number, run, "exit with N, not 75, if not acquired in time"},
    {"grace", 0, a_duration, run, "time from SIGTERM to SIGKILL, at most ttl/3", "DLOCK_GRACE",
     in_files},
    {"signal", 0, a_signal, takers, "send SIG, not SIGTERM: INT, SIGINT or 2"},
    {"max-hold", 0, a_duration, run, "stop COMMAND after DUR and exit 124"},
    {"min-hold", 0, a_duration, run, "keep the key taken for DUR at least (cron)"},
    {"wait-tree", 0, no_value, run, "hold until all descendants of COMMAND exit"},
    {"on-lost", 0, an_action, run, "stop COMMAND (default), or ignore the loss"},
    {"watchdog", 0, no_value, run, "a second process stops COMMAND if dlock cannot"},
    {"status-fd", 0, a_number, run, "write the outcome to descriptor N, as JSON"},
    {"metrics", 0, a_file, run, "write the outcome to FILE, for Prometheus"},
    {"hook", 0, "CMD", takers | release, "call CMD by sh -c on each event of the lock", nullptr,
     in_files},
    {"metrics", 0, no_value, inspect, "print metrics for Prometheus"},
    {"token", 0, "T", renew | release, "the token that acquire printed", "DLOCK_TOKEN"},
    {"stop", 0, no_value, release, "ask the holders to stop; needs no token"},
    {"force", 0, no_value, release, "evict all holders; needs no token"},
    {"yes", 0, no_value, release, "act on all keys of a PATTERN without a question"},
    {"fence", 0, a_number, release | guard, "fencing token of the holder (DLOCK_FENCE)",
     "DLOCK_FENCE", 0, release},
    {"reason", 0, "TEXT", release, "tell the holders of --stop or --force why"},
    {"json", 0, no_value, lockers_but_run | doctor | latch, "print JSON"},
    {"watch", 0, no_value, inspect, "follow changes until ^C"},
    {"free", 0, no_value, inspect, "list free keys, too, with their last holders"},
    {"acl", 0, no_value, doctor, "print the least rights that dlock's user needs"},
    {"schema", 0, no_value, doctor, "create the table for locks in a database"},
    {"env", 0, no_value, acquire, "print DLOCK_TOKEN=..., DLOCK_FENCE=, DLOCK_OWNER="},
    {"replicas", 0, a_number, takers | doctor, "count a lock only when N replicas have it"},
    {"owner", 0, "ID", takers, "act as ID: all runs with ID share the lock"},
    {"label", 0, "TEXT", takers, "shown to others, e.g. a build URL", "DLOCK_LABEL",
     in_files | may_be_empty},
    {"compat", 0, a_layout, lockers, "share the locks of a library, e.g. redisson", nullptr,
     adds_up},
    {"all-kinds", 0, no_value, inspect, "list locks of other libraries, too"},
    {"server", 0, a_url, all, "local:[/DIR], redis[s]://HOST, unix:///SOCKET, ...", "DLOCK_SERVER",
     in_files | adds_up},
    {"password-file", 0, a_secret, all, "read the server's password from F", "DLOCK_PASSWORD_FILE",
     in_files | rare},
    {"password-command", 0, "CMD", all, "take it from CMD, by /bin/sh, for each login",
     "DLOCK_PASSWORD_COMMAND", in_files | rare},
    {"password", 0, "TEXT", none, "", "DLOCK_PASSWORD", in_files},
    {"tls-ca", 0, a_file_or_directory, all, "authorities to trust for TLS", "DLOCK_TLS_CA",
     in_files | rare},
    {"tls-cert", 0, a_file, all, "certificate to show to the server", "DLOCK_TLS_CERT",
     in_files | rare},
    {"tls-key", 0, a_file, all, "private key of the certificate", "DLOCK_TLS_KEY", in_files | rare},
    {"tls-server-name", 0, "NAME", all, "name that the server's certificate must have",
     "DLOCK_TLS_SERVER_NAME", in_files | rare},
    {"sentinel-user", 0, "USER", all, "user at the sentinels", "DLOCK_SENTINEL_USER",
     in_files | rare},
    {"sentinel-password-file", 0, a_secret, all, "read the sentinels' password from F",
     "DLOCK_SENTINEL_PASSWORD_FILE", in_files | rare},
    {"sentinel-tls", 0, on_or_off, all, "TLS to the sentinels (default: as in the URL)",
     "DLOCK_SENTINEL_TLS", in_files | rare},
    {"prefix", 0, "STR", all, "what the keys begin with on the server", "DLOCK_PREFIX",
     in_files | rare},
    {"config", 0, a_file, all, "read only this configuration file", "DLOCK_CONFIG", rare},
    {"", 'q', no_value, all, "print only errors"},
    {"verbose", 'v', no_value, all, "explain each step"},
    {"help", 'h', no_value, all, "print this help"},
    {"version", 'V', no_value, all, "print the version"},
};

/// The help of an option that means something else for this command.
struct Wording {
  Command command;
  char option[7];
  const char* help;
};

constexpr Wording wordings[] = {
    {Command::acquire, "ttl", "lease: expires after DUR unless renewed"},
    {Command::renew, "ttl", "new lease, from now on (default: as acquired)"},
    {Command::latch, "ttl", "open: delete the latch after DUR (default: 1d)"},
    {Command::doctor, "ttl", "judge for locks with this lease (default: 30s)"},
    {Command::acquire, "signal", "send SIG to PID at loss, not SIGTERM"},
    {Command::release, "fence", "only the holder with this fencing token"},
    {Command::release, "wait", "with --stop: wait until those holders have gone"},
    {Command::acquire, "q", "print only errors, and no token"},
    {Command::inspect, "q", "print nothing; exit 0 if held, 1 if free"},
    {Command::doctor, "q", "print nothing; the exit code tells"},
};

constexpr Exclusion exclusion_table[] = {
    {"json", "env"},        {"json", "acl"},     {"schema", "json"},   {"schema", "acl"},
    {"watch", "q"},         {"metrics", "json"}, {"metrics", "watch"}, {"force", "token"},
    {"state", "state-key"}, {"stop", "force"},   {"stop", "token"},    {"force", "hook"},
    {"stop", "hook"},       {"ttl", "until"},
};

bool is_spelled(const Option& option, std::string_view text) {
  if (text == option.alias) return true;
  if (text.starts_with("--")) return *option.name != '\0' && text.substr(2) == option.name;
  return option.letter != 0 && text.size() == 2 && text[0] == '-' && text[1] == option.letter;
}

}  // namespace

std::span<const Subcommand> subcommands() { return subcommand_table; }

const Subcommand& subcommand(Command command) {
  return subcommand_table[static_cast<std::size_t>(command)];
}

std::string Option::shown() const {
  return *name == '\0' ? std::string("-") + letter : std::string("--") + name;
}

const char* Option::help_for(Command command) const {
  for (const Wording& each : wordings) {
    if (each.command == command && is(each.option)) return each.help;
  }
  return help;
}

std::span<const Exclusion> exclusions() { return exclusion_table; }

std::span<const Option> options() { return option_table; }

const Option* find_option(std::string_view spelled, Command command) {
  const Option* found = nullptr;
  for (const Option& each : option_table) {
    if (!is_spelled(each, spelled) || each.commands == none) continue;
    if (found == nullptr || each.belongs_to(command)) found = &each;
  }
  return found;
}

const Option& option(std::string_view name) {
  for (const Option& each : option_table) {
    if (each.is(name)) return each;
  }
  throw std::logic_error("no such option");
}

}  // namespace dlock
