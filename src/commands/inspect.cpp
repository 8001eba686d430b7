#include <unistd.h>

#include <algorithm>

#include "base/error.hpp"
#include "commands/commands.hpp"
#include "commands/open_store.hpp"
#include "commands/watch.hpp"
#include "output/json.hpp"
#include "output/metrics.hpp"

namespace dlock {
namespace {

std::string report(const Settings& settings, const std::vector<KeyState>& states) {
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

}  // namespace

int inspect_command(const Settings& settings, const Log& log) {
  if (settings.watch) watch(settings, log);
  const StorePtr store = open_store(settings, log);
  const auto states = store->inspect({settings.keys, settings.patterns}, short_call());
  if (settings.quiet) {
    const bool any_held = std::any_of(states.begin(), states.end(),
                                      [](const KeyState& state) { return !state.holders.empty(); });
    return static_cast<int>(any_held ? ExitCode::ok : ExitCode::all_free);
  }
  print(report(settings, states));
  return 0;
}

}  // namespace dlock
