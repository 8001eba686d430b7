#include "config/layout_choice.hpp"

#include <string_view>

#include "base/error.hpp"
#include "base/text.hpp"

namespace dlock {
namespace {

Layout layout_from(const std::string& text) {
  try {
    return parse_layout(text);
  } catch (const Error& error) {
    throw error.reworded(std::string("--compat: ") + error.what());
  }
}

/// The options that no layout has room for.
constexpr struct {
  char option[10];
  const char* why;
} without[] = {{"shared", "is exclusive: --shared and --limit do not go with it"},
               {"limit", "is exclusive: --shared and --limit do not go with it"},
               {"owner", "knows no owner: --owner does not go with it"},
               {"latest", "has no queue: --latest does not go with it"},
               {"replicas", "asks no replicas: --replicas does not go with it"},
               {"prefix", "has its own names of keys: --prefix does not go with it"},
               {"fence", "shows no fencing token: --fence does not go with it"},
               {"reason", "tells nobody why: --reason does not go with it"},
               {"all-kinds", "names one layout: --all-kinds does not go with it"}};

void refuse_what_no_layout_has(const CommandLine& line, const std::string& compat) {
  for (const auto& [option, why] : without) {
    if (line.has(option)) throw_usage(compat + " " + why);
  }
  const bool has_patterns = subcommand(*line.command).operands == Operands::patterns;
  if (has_patterns && !line.operands.empty()) {
    throw_usage(compat + " takes keys, and no patterns: a name with * ? or [ goes after -k");
  }
}

void check_server(const Target& server, const Layout& layout, const std::string& compat) {
  if (!is_redis(server)) {
    throw_usage(compat + ": the locks of other libraries live in Redis: name it with --server");
  }
  if (std::holds_alternative<QuorumTarget>(server) && !layout.may_be_redlock()) {
    throw_usage(compat + ": its library does not use several servers: name one");
  }
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

void resolve_layout(const CommandLine& line, LockSettings& settings) {
  const auto names = line.values("compat");
  if (names.empty()) return;
  if (names.size() > 1) {
    throw_usage("--compat goes with all keys of a command: there is a second one, \"" +
                escaped(names[1]) + "\"");
  }
  settings.layout = layout_from(names.front());
  const std::string compat = "--compat " + escaped(names.front());
  refuse_what_no_layout_has(line, compat);
  if (line.command == Command::renew && !line.has("ttl")) {
    throw_usage("missing ttl: " + compat + " does not store the one it was acquired with: -t DUR");
  }
  if (settings.keys.empty()) {
    throw_usage("missing key: dlock inspect --compat LAYOUT -k KEY; --all-kinds lists all");
  }
  check_server(settings.server, *settings.layout, compat);
}

void resolve_all_kinds(InspectSettings& settings) {
  if (settings.watch || settings.metrics) {
    throw_usage("--all-kinds does not go with --watch and --metrics");
  }
  const Target& server = settings.server;
  if (!is_redis(server) || std::holds_alternative<QuorumTarget>(server))
    throw_usage("--all-kinds: name one Redis, its sentinels or a Cluster");
  for (const LockKey& key : settings.keys) settings.patterns.push_back(pattern_of(key));
  settings.keys.clear();
}

}  // namespace dlock
