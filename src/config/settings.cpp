#include "config/settings.hpp"

#include <algorithm>
#include <csignal>
#include <limits>

#include "base/duration.hpp"
#include "base/escape.hpp"
#include "config/layout_choice.hpp"
#include "config/redaction.hpp"
#include "config/server_choice.hpp"
#include "config/sources.hpp"
#include "config/values.hpp"
#include "lock/fence_register.hpp"
#include "lock/lease_renewer.hpp"

namespace dlock {
namespace {

constexpr milliseconds shortest_ttl{100};
constexpr milliseconds longest_ttl = std::chrono::hours(24);
constexpr milliseconds longest_ttl_of_a_quorum = std::chrono::seconds(60);
/// A restarted server waits twice the longest ttl before it votes again: what a majority is to
/// remember for longer, it may forget.
constexpr milliseconds longest_min_hold_of_a_quorum = 2 * longest_ttl_of_a_quorum;
constexpr const char* missing_fence =
    "missing fence: --fence N, or DLOCK_FENCE of dlock run (--compat sets it for redisson-fenced "
    "only)";
constexpr milliseconds usual_ttl = std::chrono::seconds(30);

/// The strongest of `places`, read by `parse`; the others are read too, so that a bad value is
/// told where it stands and not on the day it takes effect.
template <typename Parse>
auto strongest(const std::vector<std::vector<SourcedValue>>& places, Parse parse)
    -> std::optional<decltype(parse(places.front().front()))> {
  std::optional<decltype(parse(places.front().front()))> first;
  for (const auto& place : places) {
    auto value = parse(place.front());
    if (!first) first = std::move(value);
  }
  return first;
}

/// Makes the Settings of one command, group by group.
class Resolver {
 public:
  Resolver(const Flags& flags, const Environment& environment, const std::string& system_file)
      : flags_(flags), sources_(flags, environment, system_file) {
    settings_.command = *flags.command;
    for (const ConfigFile& file : sources_.files()) {
      settings_.warnings.insert(settings_.warnings.end(), file.warnings.begin(),
                                file.warnings.end());
    }
  }

  Settings resolve() {
    settings_.quiet = flags_.quiet;
    settings_.verbose = flags_.verbose;
    resolve_output();
    if (has("command")) resolve_command();
    if (settings_.command == Command::latch) settings_.verb = latch_verb();
    if (has("key")) resolve_keys();
    resolve_attach();
    resolve_waiting();
    resolve_owner();
    if (settings_.command == Command::run) resolve_run();
    if (settings_.command == Command::latch) resolve_latch();
    resolve_token();
    if (has("state")) resolve_guard();
    if (!settings_.state) resolve_server();
    resolve_layout(flags_, settings_);
    return std::move(settings_);
  }

 private:
  bool has(const char* name) const { return option(name).belongs_to(settings_.command); }

  template <typename Parse>
  auto setting(const char* name, Parse parse) const {
    return strongest(sources_.of(option(name)), parse);
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

  void resolve_output() {
    if (flags_.json && flags_.env) throw_usage("--json and --env exclude each other");
    settings_.json = flags_.json;
    settings_.env = flags_.env;
    if (flags_.json && flags_.acl) throw_usage("--json and --acl exclude each other");
    settings_.acl = flags_.acl;
    if (flags_.schema && (flags_.json || flags_.acl)) {
      throw_usage("--schema and " + std::string(flags_.json ? "--json" : "--acl") +
                  " exclude each other");
    }
    settings_.schema = flags_.schema;
    if (flags_.watch && flags_.quiet) throw_usage("--watch and -q exclude each other");
    settings_.watch = flags_.watch;
    if (flags_.metrics && flags_.json) throw_usage("--metrics and --json exclude each other");
    if (flags_.metrics && flags_.watch) throw_usage("--metrics and --watch exclude each other");
    settings_.metrics = flags_.metrics;
  }

  void resolve_command() {
    settings_.command_argv = flags_.command_argv;
    if (const auto& line = flags_.command_string) {
      if (!settings_.command_argv.empty()) {
        throw_usage("--command and a COMMAND exclude each other: " +
                    in_quotes(settings_.command_argv.front()) + " follows -c STRING");
      }
      settings_.command_argv = {"/bin/sh", "-c", *line};
    }
    if (settings_.command_argv.empty()) {
      const bool is_run = settings_.command == Command::run;
      throw_usage(std::string("missing command: dlock ") +
                  (is_run ? "run -k KEY" : "guard --state FILE") + " -- COMMAND [ARG ...]");
    }
  }

  void resolve_keys() {
    for (const SourcedValue& given : sources_.in_flags(option("key"))) {
      LockKey key = key_from(given);
      const auto& keys = settings_.keys;
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) settings_.keys.push_back(key);
    }
    if (settings_.command == Command::inspect) return resolve_patterns();
    if (settings_.command == Command::release) resolve_patterns_of_release();
    if (settings_.command == Command::latch && settings_.keys.size() > 1) {
      throw_usage("latch takes one key: " + in_quotes(settings_.keys[1].text) + " is another");
    }
    if (!settings_.keys.empty() || !settings_.patterns.empty()) return;
    const std::string name =
        subcommand(settings_.command).name + (flags_.verb ? " " + *flags_.verb : "");
    const bool is_run = settings_.command == Command::run;
    const std::string usage = is_run ? " -- COMMAND [ARG ...]" : "";
    const auto& command = flags_.command_argv;
    if (is_run && command.size() > 1 && command[1] == "--") {
      throw_usage("missing -k before the key: dlock run -k " + redacted(command[0]) + usage);
    }
    const std::string misread =
        is_run && command.size() > 1 ? in_quotes(command[0]) + " was read as COMMAND; " : "";
    throw_usage("missing key: " + misread + "dlock " + name + " -k KEY" + usage);
  }

  void resolve_patterns() {
    take_patterns();
    if (settings_.keys.empty() && settings_.patterns.empty()) settings_.patterns = {"*"};
  }

  /// With a token an operand is a key, whatever is in it.
  void resolve_patterns_of_release() {
    if (flags_.force) {
      take_patterns();
      if (!settings_.patterns.empty() && flags_.fence) {
        throw_usage("--fence goes with keys: " + in_quotes(settings_.patterns.front()) +
                    " is a pattern");
      }
      return;
    }
    for (const std::string& text : flags_.patterns) {
      settings_.keys.push_back(key_from({text, "--key", ErrorKind::usage}));
    }
  }

  void take_patterns() {
    for (const std::string& text : flags_.patterns) {
      key_from({text, "PATTERN", ErrorKind::usage});
      const auto& patterns = settings_.patterns;
      if (std::find(patterns.begin(), patterns.end(), text) == patterns.end()) {
        settings_.patterns.push_back(text);
      }
    }
  }

  void resolve_attach() {
    if (!has("signal")) return;
    settings_.attach = number("attach", "process id", 1, std::numeric_limits<pid_t>::max());
    settings_.stop_signal = setting("signal", signal_from).value_or(SIGTERM);
    const bool nobody_to_tell = has("attach") && !settings_.attach;
    if (flags_.signal && nobody_to_tell)
      throw_usage("--signal goes with --attach PID: it is sent to PID");
  }

  void resolve_waiting() {
    if (has("wait")) {
      settings_.wait = duration("wait", milliseconds(0), longest_duration);
      if (flags_.nonblock) settings_.wait = milliseconds(0);
      settings_.latest = flags_.latest;
      if (settings_.latest && settings_.wait == milliseconds(0)) {
        throw_usage("--latest goes with waiting, not with -n or -w 0: a newer one ends the wait");
      }
    }
    if (has("label")) {
      settings_.label = setting("label", label_from).value_or("");
      if (const auto limit = number("limit", "limit", 1, largest_limit)) {
        settings_.limit = Limit{*limit};
      }
      if (flags_.shared) settings_.limit = no_limit;
    }
    if (has("ttl") && settings_.command != Command::latch) resolve_ttl();
  }

  void resolve_ttl() {
    settings_.ttl = duration("ttl", shortest_ttl, longest_ttl);
    if (settings_.ttl) return;
    if (settings_.command == Command::acquire && !settings_.attach) {
      throw_usage(
          "missing ttl: only the caller renews a lock of acquire, so choose its lease with -t DUR, "
          "or have it renewed until this script ends with --attach \"$$\"");
    }
    if (settings_.command != Command::renew) settings_.ttl = usual_ttl;
  }

  void resolve_latch() {
    constexpr milliseconds usual = std::chrono::hours(24);
    allow_latch_flag("count", flags_.count.has_value(), LatchVerb::open);
    allow_latch_flag("ttl", flags_.ttl.has_value(), LatchVerb::open);
    allow_latch_flag("by", flags_.by.has_value(), LatchVerb::arrive);
    allow_latch_flag("nonblock", flags_.nonblock, LatchVerb::wait);
    allow_latch_flag("wait", flags_.wait.has_value(), LatchVerb::wait);
    settings_.ttl = duration("ttl", shortest_ttl, longest_duration).value_or(usual);
    settings_.by = setting("by", arrival_id_from);
    if (settings_.verb != LatchVerb::open) return;
    const auto count = number("count", "count", 1, largest_latch);
    if (!count) throw_usage("missing count: dlock latch open -k KEY --count N");
    settings_.count = *count;
  }

  LatchVerb latch_verb() const {
    constexpr const char* known = "open, arrive or wait, as in dlock latch wait -k KEY";
    if (!flags_.verb) throw_usage(std::string("missing verb: dlock latch ") + known);
    if (*flags_.verb == "open") return LatchVerb::open;
    if (*flags_.verb == "arrive") return LatchVerb::arrive;
    if (*flags_.verb == "wait") return LatchVerb::wait;
    throw_usage("unknown verb " + in_quotes(*flags_.verb) + ": after latch comes " + known);
  }

  void allow_latch_flag(const char* name, bool given, LatchVerb verb) const {
    constexpr const char* verbs[] = {"open", "arrive", "wait"};
    if (!given || settings_.verb == verb) return;
    throw_usage(option(name).shown() + " goes with latch " + verbs[static_cast<std::size_t>(verb)] +
                ", not with latch " + *flags_.verb);
  }

  void resolve_owner() {
    if (!has("owner")) return;
    settings_.owner = setting("owner", owner_from);
    for (const SourcedValue& given : sources_.in_variable("DLOCK_OWNER")) {
      settings_.above = owner_path_from(given);
      const auto slashes = std::count(given.text.begin(), given.text.end(), '/');
      const bool full = static_cast<std::size_t>(slashes) + 1 >= deepest_owner;
      if (full && !settings_.owner)
        given.refuse("is 16 levels deep already: too many nested dlock");
    }
  }

  void resolve_run() {
    settings_.conflict_exit_code = number("conflict-exit-code", "exit code", 0, 255);
    settings_.max_hold = duration("max-hold", milliseconds(1), longest_duration);
    settings_.min_hold = duration("min-hold", milliseconds(1), longest_duration);
    settings_.wait_tree = flags_.wait_tree;
    settings_.on_lost = setting("on-lost", on_lost_from).value_or(OnLost::stop);
    settings_.watchdog = flags_.watchdog;
    settings_.status_fd = setting("status-fd", status_fd_from);
    settings_.metrics_file = flags_.metrics_file;
    settings_.hook = setting("hook", [](const SourcedValue& given) { return given.text; });
    resolve_grace();
  }

  void resolve_grace() {
    const milliseconds most = *settings_.ttl / 3;
    const auto grace = duration("grace", milliseconds(0), longest_duration);
    // Less than the most: SIGKILL comes before the lease ends, and renewals need time as well.
    settings_.grace = grace.value_or(std::min(milliseconds(5000), *settings_.ttl / 4));
    if (settings_.grace <= most) return;
    const SourcedValue given = sources_.of(option("grace")).front().front();
    given.refuse(in_quotes(given.text) + " is more than a third of the ttl, which is " +
                 human_duration(*settings_.ttl));
  }

  void resolve_token() {
    if (has("force")) resolve_force();
    if (!has("token") || settings_.force) return;
    settings_.token = given_up_token() ? Token{} : setting("token", token_from);
    if (settings_.token) return;
    throw_usage(
        std::string("missing token: --token or an exported DLOCK_TOKEN with what acquire ") +
        "printed" + (has("force") ? ", or --force" : ""));
  }

  /// Whether `release` is given an empty token, by the flag or the variable: a step that always
  /// runs passes on what an acquire printed, and that one has failed.
  bool given_up_token() const {
    if (settings_.command != Command::release) return false;
    if (flags_.token) return flags_.token->empty();
    return sources_.is_empty("DLOCK_TOKEN");
  }

  void resolve_force() {
    settings_.force = flags_.force;
    if (flags_.force && flags_.token) throw_usage("--force and --token exclude each other");
    if (flags_.fence && !flags_.force) throw_usage("--fence goes with --force");
    if (flags_.reason && !flags_.force) throw_usage("--reason goes with --force");
    settings_.reason = setting("reason", reason_from).value_or("");
    settings_.fence = setting("fence", [&](const SourcedValue& given) {
      return Fence{number_from(given, "fence", 1, largest_fence)};
    });
  }

  void resolve_guard() {
    if (flags_.state && flags_.state_key) throw_usage("--state and --state-key exclude each other");
    if (!flags_.state && !flags_.state_key) {
      throw_usage("missing resource: --state FILE or --state-key NAME");
    }
    if (flags_.state && !flags_.servers.empty()) throw_usage("--server goes with --state-key");
    settings_.state = flags_.state;
    settings_.state_key = setting("state-key", key_from);
    const Option& fence = option("fence");
    // A flag chooses where the variable names several.
    const auto given =
        flags_.fence ? sources_.in_flags(fence) : sources_.in_variable(fence.variable);
    if (given.empty()) throw_usage(missing_fence);
    if (!flags_.fence && given.front().text.find(',') != std::string::npos) {
      given.front().refuse("has a fence for each of several keys: choose with --fence N");
    }
    settings_.fence = Fence{number_from(given.front(), "fence", 0, largest_fence)};
  }

  void resolve_server() {
    settings_.prefix = setting("prefix", prefix_from).value_or(settings_.prefix);
    auto choice = choose_server(sources_);
    settings_.server_is_default = !choice.configured;
    settings_.server = std::move(choice.target);
    resolve_replicas();
    check_spans_of_a_quorum();
    settings_.warnings.insert(settings_.warnings.end(), choice.warnings.begin(),
                              choice.warnings.end());
  }

  void resolve_replicas() {
    constexpr int most_replicas = 1000;
    settings_.replicas =
        number("replicas", "number of replicas", 1, most_replicas).value_or(settings_.replicas);
    if (settings_.replicas == 0) return;
    if (std::holds_alternative<LocalTarget>(settings_.server)) {
      throw_usage("--replicas: locks on this host have none: it needs a Redis server");
    }
    const bool copies_itself = std::holds_alternative<SqlTarget>(settings_.server) ||
                               std::holds_alternative<EtcdTarget>(settings_.server) ||
                               std::holds_alternative<ZooKeeperTarget>(settings_.server);
    if (copies_itself) throw_usage("--replicas: it goes with Redis; others say it on the server");
    if (std::holds_alternative<QuorumTarget>(settings_.server)) {
      throw_usage("--replicas: on a majority of servers a replica has no vote: name one server");
    }
  }

  /// A server that lost its memory must know for how long leases may last that it has forgotten.
  void check_spans_of_a_quorum() {
    if (!std::holds_alternative<QuorumTarget>(settings_.server)) return;
    if (settings_.command == Command::latch) return;
    const auto at_most = [&](const char* name, std::optional<milliseconds> span, milliseconds most,
                             const std::string& why) {
      if (span.value_or(milliseconds(0)) <= most) return;
      const SourcedValue given = sources_.of(option(name)).front().front();
      given.refuse("at most " + human_duration(most) + " on a majority of servers; " + why);
    };
    at_most("ttl", settings_.ttl, longest_ttl_of_a_quorum,
            "dlock renews it while the command runs");
    at_most("min-hold", settings_.min_hold, longest_min_hold_of_a_quorum,
            "a server that restarts may forget a longer one");
  }

  const Flags& flags_;
  const Sources sources_;
  Settings settings_;
};

}  // namespace

Settings resolve(const Flags& flags, const Environment& environment,
                 const std::string& system_file) {
  return Resolver(flags, environment, system_file).resolve();
}

}  // namespace dlock
