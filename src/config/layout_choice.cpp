#include "config/layout_choice.hpp"

#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/escape.hpp"

namespace dlock {
namespace {

Layout layout_from(const std::string& text) {
  try {
    return parse_layout(text);
  } catch (const Error& error) {
    throw error.reworded(std::string("--compat: ") + error.what());
  }
}

void refuse_what_no_layout_has(const Flags& flags, const std::string& compat) {
  const std::pair<bool, const char*> without[] = {
      {flags.shared || flags.limit, "is exclusive: --shared and --limit do not go with it"},
      {flags.owner.has_value(), "knows no owner: --owner does not go with it"},
      {flags.latest, "has no queue: --latest does not go with it"},
      {flags.replicas.has_value(), "asks no replicas: --replicas does not go with it"},
      {flags.prefix.has_value(), "has its own names of keys: --prefix does not go with it"},
      {flags.force && flags.fence, "shows no fencing token: --fence does not go with it"},
      {flags.reason.has_value(), "tells nobody why: --reason does not go with it"},
      {flags.all_kinds, "names one layout: --all-kinds does not go with it"},
      {!flags.patterns.empty(), "takes keys, and no patterns: a name with * ? or [ goes after -k"}};
  for (const auto& [given, why] : without) {
    if (given) throw_usage(compat + " " + why);
  }
}

void check_server(const Target& server, const Layout& layout, const std::string& compat) {
  if (std::holds_alternative<LocalTarget>(server) || std::holds_alternative<SqlTarget>(server)) {
    throw_usage(compat + ": the locks of other libraries live in Redis: name it with --server");
  }
  if (std::holds_alternative<QuorumTarget>(server) && !layout.may_be_redlock()) {
    throw_usage(compat + ": its library does not use several servers: name one");
  }
}

Layout choose_layout(const Flags& flags, const Settings& settings) {
  if (flags.layouts.size() > 1) {
    throw_usage("--compat goes with all keys of a command: there is a second one, \"" +
                escaped(flags.layouts[1]) + "\"");
  }
  Layout layout = layout_from(flags.layouts.front());
  const std::string compat = "--compat " + escaped(flags.layouts.front());
  refuse_what_no_layout_has(flags, compat);
  if (settings.command == Command::renew && !settings.ttl) {
    throw_usage("missing ttl: " + compat + " does not store the one it was acquired with: -t DUR");
  }
  if (settings.command == Command::inspect && settings.keys.empty()) {
    throw_usage("missing key: dlock inspect --compat LAYOUT -k KEY; --all-kinds lists all");
  }
  check_server(settings.server, layout, compat);
  return layout;
}

void check_all_kinds(const Flags& flags, const Settings& settings) {
  if (flags.watch || flags.metrics) {
    throw_usage("--all-kinds does not go with --watch and --metrics");
  }
  const Target& server = settings.server;
  const bool has_them = std::holds_alternative<Endpoint>(server) ||
                        std::holds_alternative<SentinelTarget>(server) ||
                        std::holds_alternative<ClusterTarget>(server);
  if (!has_them) throw_usage("--all-kinds: name one Redis, its sentinels or a Cluster");
}

/// The pattern that meets this name only.
std::string pattern_of(const LockKey& key) {
  std::string pattern;
  for (const char c : key.text) {
    if (std::string_view("*?[\\").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace

void resolve_layout(const Flags& flags, Settings& settings) {
  settings.all_kinds = flags.all_kinds;
  if (!flags.layouts.empty()) settings.layout = choose_layout(flags, settings);
  if (!flags.all_kinds) return;
  check_all_kinds(flags, settings);
  for (const LockKey& key : settings.keys) settings.patterns.push_back(pattern_of(key));
  settings.keys.clear();
}

}  // namespace dlock
