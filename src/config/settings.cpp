#include "config/settings.hpp"

#include <algorithm>
#include <csignal>
#include <limits>
#include <type_traits>

#include "base/duration.hpp"
#include "config/secrets.hpp"
#include "config/server_choice.hpp"
#include "config/sources.hpp"
#include "lock/lease_renewer.hpp"
#include "lock/store.hpp"

namespace dlock {
namespace {

constexpr milliseconds shortest_ttl{100};
/// The longest lease of a run, which renews it, and of a lock that only its caller renews.
constexpr milliseconds longest_ttl_of_a_run = std::chrono::hours(24);
constexpr milliseconds longest_ttl = std::chrono::days(31);
constexpr const char* missing_fence =
    "missing fence: --fence N, or DLOCK_FENCE of dlock run (--compat sets it for redisson-fenced "
    "only)";
constexpr const char* missing_token =
    "missing token: --token or an exported DLOCK_TOKEN with what acquire printed";
constexpr milliseconds usual_ttl = std::chrono::seconds(30);
/// In the order of LatchVerb.
constexpr char latch_verbs[][7] = {"open", "arrive", "wait"};

/// A node of a majority that lost its memory waits twice the longest ttl before it votes again; the
/// majority may forget anything that lasts longer.
constexpr milliseconds longest_ttl_of_a_quorum = std::chrono::seconds(60);
constexpr milliseconds longest_min_hold_of_a_quorum = 2 * longest_ttl_of_a_quorum;

/// A text that passes a check of lock/claim.
template <typename Text, std::optional<std::string> (*fault_of)(std::string_view)>
Text checked(const SourcedValue& given) {
  if (const auto fault = fault_of(given.text)) given.refuse(in_quotes(given.text) + " " + *fault);
  return Text{given.text};
}

constexpr auto key_from = checked<LockKey, key_fault>;

Token token_from(const SourcedValue& given) {
  // A token allows a release, so not even a damaged one belongs in a log.
  if (const auto fault = token_fault(given.text)) given.refuse("the token " + *fault);
  return Token{given.text};
}

template <typename Value>
void add_once(std::vector<Value>& to, const Value& value) {
  if (std::find(to.begin(), to.end(), value) == to.end()) to.push_back(value);
}

/// Makes the settings of one command, part by part.
class Resolver {
 public:
  Resolver(const CommandLine& line, const Environment& environment, const std::string& system_file)
      : line_(line), command_(*line.command), sources_(line, environment, system_file) {}

  Settings resolve() const {
    for (const auto& [one, other] : exclusions()) {
      if (!line_.has(one) || !line_.has(other)) continue;
      throw_usage(option(one).shown() + " and " + option(other).shown() + " exclude each other");
    }
    if (command_ == Command::run) return made<RunSettings>();
    if (command_ == Command::acquire) return made<AcquireSettings>();
    if (command_ == Command::renew) return made<RenewSettings>();
    if (command_ == Command::release) return made<ReleaseSettings>();
    if (command_ == Command::inspect) return made<InspectSettings>();
    if (command_ == Command::latch) return made<LatchSettings>();
    if (command_ == Command::doctor) return made<DoctorSettings>();
    return made<GuardSettings>();
  }

 private:
  template <typename CommandSettings>
  Settings made() const {
    CommandSettings settings;
    settings.quiet = line_.has("q");
    settings.verbose = line_.has("verbose");
    settings.warnings = sources_.warnings();
    if constexpr (requires { settings.json; }) settings.json = line_.has("json");
    resolve(settings);
    // `guard --state` needs no server.
    if constexpr (requires { settings.state; }) {
      if (settings.state) return settings;
    }
    resolve_server(settings);
    return settings;
  }

  /// Chooses the server last, and refuses settings that do not fit it.
  template <typename CommandSettings>
  void resolve_server(CommandSettings& settings) const {
    settings.prefix = setting("prefix", prefix_from).value_or(settings.prefix);
    choose_server(sources_, settings);
    constexpr bool is_doctor = std::is_same_v<CommandSettings, DoctorSettings>;
    if constexpr (is_doctor) settings.expected_replicas = replicas(settings.server);
    if constexpr (!is_doctor) settings.replicas = replicas(settings.server);
    if constexpr (requires { settings.ttl; }) settings.session_ttl = settings.ttl;
    if constexpr (std::is_base_of_v<ClaimSettings, CommandSettings>) warn_of_engine(settings);
    if (std::holds_alternative<QuorumTarget>(settings.server)) {
      constexpr bool is_latch = std::is_same_v<CommandSettings, LatchSettings>;
      if constexpr (!is_latch && requires { settings.ttl; }) {
        constexpr bool is_run = std::is_same_v<CommandSettings, RunSettings>;
        refuse_over(longest_ttl_of_a_quorum, line_.has("until") ? "until" : "ttl", settings.ttl,
                    is_run ? "dlock renews it while the command runs"
                           : "use dlock run or acquire --attach PID, which renew it");
      }
      if constexpr (requires { settings.min_hold; }) {
        refuse_over(longest_min_hold_of_a_quorum, "min-hold", settings.min_hold,
                    "a server that restarts may forget a longer one");
      }
    }
    choose_layout(line_, settings);
    if constexpr (requires { settings.all_kinds; }) choose_shown(settings);
  }

  void resolve(RunSettings& settings) const {
    settings.command_argv = command_argv();
    settings.keys = keys_that_are_needed();
    resolve_claim(settings, false, longest_ttl_of_a_run);
    settings.conflict_exit_code = number("conflict-exit-code", "exit code", 0, 255);
    settings.max_hold = duration("max-hold", milliseconds(1), longest_duration);
    settings.min_hold = duration("min-hold", milliseconds(1), longest_duration);
    settings.wait_tree = line_.has("wait-tree");
    settings.stop_on_loss = setting("on-lost", stop_on_loss_from).value_or(true);
    settings.watchdog = line_.has("watchdog");
    settings.status_fd = setting("status-fd", status_fd_from);
    settings.metrics_file = line_.value("metrics");
    settings.grace = grace(settings.ttl);
  }

  void resolve(AcquireSettings& settings) const {
    settings.keys = keys_that_are_needed();
    settings.attach = number("attach", "process id", 1, std::numeric_limits<pid_t>::max());
    if (line_.has("signal") && !settings.attach) {
      throw_usage("--signal goes with --attach PID: it is sent to PID");
    }
    settings.until = setting("until", [](const SourcedValue& given) {
      return moment_from(given, shortest_ttl, longest_ttl);
    });
    if (settings.until && settings.attach) {
      throw_usage("--until is for a lock that expires by itself: --attach holds it until PID ends");
    }
    resolve_claim(settings, !settings.attach && !settings.until, longest_ttl);
    if (settings.until) {
      settings.ttl = std::chrono::floor<milliseconds>(*settings.until - wall_now());
    }
    settings.env = line_.has("env");
  }

  void resolve(RenewSettings& settings) const {
    settings.keys = keys();
    settings.ttl = duration("ttl", shortest_ttl, longest_ttl);
    const auto token = setting("token", token_from);
    if (!token) throw_usage(missing_token);
    settings.token = *token;
  }

  void resolve(ReleaseSettings& settings) const {
    settings.evict = line_.has("force");
    settings.stop = line_.has("stop");
    const bool of_others = settings.evict || settings.stop;
    settings.keys = keys();
    if (of_others) {
      settings.patterns = patterns();
      if (!settings.patterns.empty() && line_.has("fence")) {
        throw_usage("--fence goes with keys: " + in_quotes(settings.patterns.front()) +
                    " is a pattern");
      }
    } else {
      // With a token every operand is a key, never a pattern.
      for (const std::string& text : line_.operands) {
        add_once(settings.keys, key_from({text, "--key", ErrorKind::usage}));
      }
    }
    if (of_others && settings.keys.empty() && settings.patterns.empty()) refuse_without_key();
    for (const char* name : {"fence", "reason", "yes"}) {
      if (line_.has(name) && !of_others) {
        throw_usage(option(name).shown() + " goes with --force or --stop");
      }
    }
    if (line_.has("wait") && !settings.stop) throw_usage("--wait goes with --stop");
    settings.wait = duration("wait", milliseconds(0), longest_duration);
    settings.yes = line_.has("yes");
    settings.reason = setting("reason", reason_from).value_or("");
    for (const SourcedValue& given : sources_.in_flags("fence")) {
      settings.fence = Fence{number_from(given, "fence", 1, largest_fence)};
    }
    if (!of_others) settings.token = token_to_release();
    settings.hook = hook();
  }

  void resolve(InspectSettings& settings) const {
    settings.keys = keys();
    settings.patterns = patterns();
    if (settings.keys.empty() && settings.patterns.empty()) settings.patterns = {"*"};
    settings.watch = line_.has("watch");
    settings.metrics = line_.has("metrics");
    settings.free = line_.has("free");
    settings.all_kinds = line_.has("all-kinds");
  }

  void resolve(LatchSettings& settings) const {
    constexpr milliseconds usual = std::chrono::hours(24);
    settings.verb = latch_verb();
    const auto names = keys_that_are_needed();
    if (names.size() > 1) {
      throw_usage("latch takes one key: " + in_quotes(names[1].text) + " is another");
    }
    settings.key = names.front();
    settings.wait = wait();
    refuse_flags_of_other_verbs();
    settings.ttl = duration("ttl", shortest_ttl, longest_duration).value_or(usual);
    settings.by = setting("by", checked<ArrivalId, owner_id_fault>);
    if (settings.verb == LatchVerb::open) {
      const auto count = number("count", "count", 1, largest_latch);
      if (!count) throw_usage("missing count: dlock latch open -k KEY --count N");
      settings.count = *count;
    }
  }

  void resolve(DoctorSettings& settings) const {
    settings.ttl = duration("ttl", shortest_ttl, longest_ttl).value_or(usual_ttl);
    settings.acl = line_.has("acl");
    settings.schema = line_.has("schema");
  }

  void resolve(GuardSettings& settings) const {
    settings.command_argv = command_argv();
    settings.state = line_.value("state");
    settings.state_key = setting("state-key", key_from);
    if (!settings.state && !settings.state_key) {
      throw_usage("missing resource: --state FILE or --state-key NAME");
    }
    if (settings.state) sources_.refuse_flags(flags_about_a_server, "goes with --state-key");
    settings.fence = guarded_fence();
  }

  /// Returns the value of an option from the source with the highest precedence. The values of
  /// other sources are parsed, too, so that a bad value is reported now and not when it takes
  /// effect.
  template <typename Parse>
  auto setting(const char* name, Parse parse) const
      -> std::optional<decltype(parse(std::declval<const SourcedValue&>()))> {
    std::optional<decltype(parse(std::declval<const SourcedValue&>()))> first;
    for (const auto& place : sources_.of(name)) {
      if (place.empty()) continue;
      auto value = parse(place.front());
      if (!first) first = std::move(value);
    }
    return first;
  }

  std::optional<milliseconds> duration(const char* name, milliseconds least,
                                       milliseconds most) const {
    return setting(name,
                   [&](const SourcedValue& given) { return duration_from(given, least, most); });
  }

  std::optional<int> number(const char* name, const char* what, int low, int high) const {
    return setting(name, [&](const SourcedValue& given) {
      return static_cast<int>(number_from(given, what, low, high));
    });
  }

  std::vector<std::string> command_argv() const {
    const auto line = line_.value("command");
    if (!line && line_.operands.empty()) {
      const bool is_run = command_ == Command::run;
      throw_usage(std::string("missing command: dlock ") +
                  (is_run ? "run -k KEY" : "guard --state FILE") + " -- COMMAND [ARG ...]");
    }
    if (!line) return line_.operands;
    if (!line_.operands.empty()) {
      throw_usage("--command and a COMMAND exclude each other: " +
                  in_quotes(line_.operands.front()) + " follows -c STRING");
    }
    return {"/bin/sh", "-c", *line};
  }

  std::vector<LockKey> keys() const {
    std::vector<LockKey> keys;
    for (const SourcedValue& given : sources_.in_flags("key")) add_once(keys, key_from(given));
    return keys;
  }

  std::vector<std::string> patterns() const {
    std::vector<std::string> patterns;
    for (const std::string& text : line_.operands) {
      add_once(patterns, key_from({text, "PATTERN", ErrorKind::usage}).text);
    }
    return patterns;
  }

  std::vector<LockKey> keys_that_are_needed() const {
    auto all = keys();
    if (all.empty()) refuse_without_key();
    return all;
  }

  [[noreturn]] void refuse_without_key() const {
    const auto& operands = line_.operands;
    const bool is_latch = command_ == Command::latch;
    const std::string name =
        subcommand(command_).name + (is_latch ? " " + operands.front() : "") + " -k ";
    if (command_ != Command::run) throw_usage("missing key: dlock " + name + "KEY");
    constexpr const char* usage = " -- COMMAND [ARG ...]";
    if (operands.size() > 1 && operands[1] == "--") {
      throw_usage("missing -k before the key: dlock " + name + redacted(operands[0]) + usage);
    }
    throw_usage("missing key: dlock " + name + "KEY" + usage);
  }

  /// Shortens a bad label, with a warning, because a label must not stop a deployment.
  std::string label(ClaimSettings& settings) const {
    const auto label = setting("label", [&](const SourcedValue& given) {
      std::string line = line_from(given, "the label");
      if (line == given.text) return line;
      settings.warnings.push_back(
          given.place + ": the label is shortened to its first line, of at most 200 bytes");
      return line;
    });
    return label.value_or("");
  }

  std::optional<std::string> hook() const {
    return setting("hook", [](const SourcedValue& given) { return given.text; });
  }

  std::optional<milliseconds> wait() const {
    const auto wait = duration("wait", milliseconds(0), longest_duration);
    return line_.has("nonblock") ? milliseconds(0) : wait;
  }

  void resolve_claim(ClaimSettings& settings, bool ttl_is_needed, milliseconds longest) const {
    settings.wait = wait();
    settings.stop_signal = setting("signal", signal_from).value_or(SIGTERM);
    settings.preempt = line_.has("preempt");
    settings.latest = line_.has("latest");
    for (const char* name : {"preempt", "latest"}) {
      if (!line_.has(name) || settings.wait != milliseconds(0)) continue;
      throw_usage(option(name).shown() + " goes with waiting, not with -n or -w 0");
    }
    settings.label = label(settings);
    settings.hook = hook();
    if (const auto most = number("limit", "limit", 1, largest_limit)) settings.limit = {*most};
    if (line_.has("shared")) settings.limit = no_limit;
    const auto ttl = duration("ttl", shortest_ttl, longest);
    if (!ttl && ttl_is_needed) {
      throw_usage(
          "missing ttl: only the caller renews a lock of acquire, so choose its lease with -t DUR "
          "or --until TIME, or have it renewed until this script ends with --attach \"$$\"");
    }
    settings.ttl = ttl.value_or(usual_ttl);
    settings.owner = setting("owner", checked<Owner, owner_id_fault>);
    for (const SourcedValue& given : sources_.in_variable("DLOCK_OWNER")) {
      settings.above = checked<Owner, owner_path_fault>(given);
    }
  }

  milliseconds grace(milliseconds ttl) const {
    const auto grace = duration("grace", milliseconds(0), longest_duration);
    // The default is less than the maximum, because SIGKILL must come before the lease expires, and
    // renewals need time, too.
    if (!grace) return std::min(milliseconds(5000), ttl / 4);
    if (*grace <= ttl / 3) return *grace;
    const auto given = sources_.first("grace");
    given->refuse(in_quotes(given->text) + " is more than a third of the ttl, which is " +
                  human_duration(ttl));
  }

  /// The value of --replicas, 0 if it is not given.
  int replicas(const Target& server) const {
    const auto replicas = number("replicas", "number of replicas", 1, 1000);
    const bool may_have_some = is_redis(server) && !std::holds_alternative<QuorumTarget>(server);
    if (replicas && !may_have_some) {
      throw_usage("--replicas: only one Redis server, its sentinels or a Cluster have replicas");
    }
    return replicas.value_or(0);
  }

  void refuse_over(milliseconds most, const char* name, std::optional<milliseconds> span,
                   const char* why) const {
    if (span.value_or(milliseconds(0)) <= most) return;
    sources_.first(name)->refuse("at most " + human_duration(most) + " on a majority of servers; " +
                                 why);
  }

  LatchVerb latch_verb() const {
    constexpr const char* known = "open, arrive or wait, as in dlock latch wait -k KEY";
    if (line_.operands.empty()) throw_usage(std::string("missing verb: dlock latch ") + known);
    const std::string& verb = line_.operands.front();
    const auto found = std::find(std::begin(latch_verbs), std::end(latch_verbs), verb);
    if (found != std::end(latch_verbs)) return static_cast<LatchVerb>(found - latch_verbs);
    throw_usage("unknown verb " + in_quotes(verb) + ": after latch comes " + known);
  }

  void refuse_flags_of_other_verbs() const {
    constexpr char flags[][2][9] = {
        {"count", "open"},    {"ttl", "open"},  {"by", "arrive"},
        {"nonblock", "wait"}, {"wait", "wait"},
    };
    const std::string& verb = line_.operands.front();
    for (const auto& [name, with] : flags) {
      if (!line_.has(name) || verb == with) continue;
      throw_usage(option(name).shown() + " goes with latch " + with + ", not with latch " + verb);
    }
  }

  /// Accepts an empty token: a step that always runs may pass on the output of an acquire that
  /// failed.
  Token token_to_release() const {
    const auto flags = sources_.in_flags("token");
    const bool none = sources_.is_empty(option("token").variable);
    if (flags.empty() ? none : flags.front().text.empty()) return {};
    const auto token = setting("token", token_from);
    if (!token) throw_usage(std::string(missing_token) + ", --stop or --force");
    return *token;
  }

  Fence guarded_fence() const {
    const bool has_flag = line_.has("fence");
    // If the variable holds several fences, the flag says which one counts.
    const auto given =
        has_flag ? sources_.in_flags("fence") : sources_.in_variable(option("fence").variable);
    if (given.empty()) throw_usage(missing_fence);
    if (!has_flag && given.front().text.find(',') != std::string::npos) {
      given.front().refuse("has a fence for each of several keys: choose with --fence N");
    }
    return Fence{number_from(given.front(), "fence", 0, largest_fence)};
  }

  const CommandLine& line_;
  const Command command_;
  const Sources sources_;
};

}  // namespace

Settings resolve(const CommandLine& line, const Environment& environment,
                 const std::string& system_file) {
  return Resolver(line, environment, system_file).resolve();
}

}  // namespace dlock
