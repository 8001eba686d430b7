#include <unistd.h>

#include <algorithm>

#include "base/error.hpp"
#include "commands/commands.hpp"
#include "commands/open_store.hpp"
#include "commands/watch.hpp"
#include "compat/key_kind.hpp"
#include "output/json.hpp"
#include "output/metrics.hpp"

namespace dlock {
namespace {

std::string report(const InspectSettings& settings, const std::vector<KeyState>& states) {
  if (settings.metrics) return inspect_metrics(states);
  if (!settings.json) {
    const Screen screen = screen_at(STDOUT_FILENO);
    // A program that reads a pipe counts lines.
    if (states.empty() && screen.is_terminal) return "no locks\n";
    return inspect_text(settings, states, screen);
  }
  std::string text;
  for (const KeyState& state : states) text += key_json(state);
  return text;
}

/// dlock's own locks first, and then those of other libraries.
std::vector<KindRow> rows_of_all_kinds(const InspectSettings& settings, const Log& log) {
  std::vector<KindRow> rows;
  const StorePtr store = open_store(settings, log);
  for (const KeyState& state :
       store->inspect({{}, settings.patterns}, inspect_call(settings, settings.patterns))) {
    for (const Holder& holder : state.holders) {
      const char* kind = holder.limit == exclusive  ? "lock"
                         : holder.limit.unlimited() ? "shared lock"
                                                    : "semaphore";
      rows.push_back({state.key.text, "dlock", holder.kept ? "cooldown" : kind, holder});
    }
  }
  const auto servers = open_redis(settings.server, {});
  for (auto& found : all_foreign_locks(*servers, settings.patterns, settings.prefix,
                                       inspect_call(settings, settings.patterns))) {
    rows.push_back({found.key, found.lock.holder.library, found.lock.kind, found.lock.holder});
  }
  return rows;
}

int inspect_all_kinds(const InspectSettings& settings, const Log& log) {
  const auto rows = rows_of_all_kinds(settings, log);
  if (settings.quiet) return static_cast<int>(rows.empty() ? ExitCode::all_free : ExitCode::ok);
  const Screen screen = screen_at(STDOUT_FILENO);
  std::string text;
  if (settings.json) {
    for (const KindRow& row : rows) text += kind_json(row);
  } else {
    text = rows.empty() && screen.is_terminal ? "no locks\n" : kinds_text(rows, screen);
  }
  print(text);
  return 0;
}

}  // namespace

int carry_out(const InspectSettings& settings, const Log& log) {
  if (settings.all_kinds) return inspect_all_kinds(settings, log);
  if (settings.watch) watch(settings, log);
  const StorePtr store = open_store(settings, log);
  const auto states =
      store->inspect({settings.keys, settings.patterns}, inspect_call(settings, settings.patterns));
  if (settings.quiet) {
    const bool any_held = std::any_of(states.begin(), states.end(),
                                      [](const KeyState& state) { return !state.holders.empty(); });
    return static_cast<int>(any_held ? ExitCode::ok : ExitCode::all_free);
  }
  print(report(settings, states));
  return 0;
}

}  // namespace dlock
