#include "config/suggestion.hpp"

#include <algorithm>
#include <span>

namespace dlock {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> best(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) best[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) best[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = best[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      best[i][j] = std::min({best[i - 1][j] + 1, best[i][j - 1] + 1, change});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) best[i][j] = std::min(best[i][j], best[i - 2][j - 2] + 1);
    }
  }
  return best[a.size()][b.size()];
}

std::size_t letters(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return c != '-'; }));
}

}  // namespace

std::string did_you_mean(std::string_view text, const std::vector<std::string>& candidates) {
  // Nobody mistypes by more than this, and the table of distances stays small.
  constexpr std::size_t longest = 64;
  if (text.size() > longest || letters(text) < 2) return "";
  const std::string* nearest = nullptr;
  std::size_t least = std::max<std::size_t>(1, letters(text) / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = candidate.starts_with(text) ? 1 : edit_distance(text, candidate);
    if (distance >= least) continue;
    least = distance;
    nearest = &candidate;
  }
  return nearest == nullptr ? "" : ": did you mean " + *nearest + "?";
}

namespace {

struct FlagOfFlock {
  std::string_view letter;
  std::string_view name;
  const char* instead;
};
constexpr FlagOfFlock refusal_table[] = {
    {"-F", "--no-fork",
     "dlock must stay to renew the lease, and the command's exit code is passed on"},
    {"-o", "--close", "not needed: the command never gets a descriptor of dlock"},
    {"-u", "--unlock", "to release a lock: dlock release"},
    {"", "--timeout", "use --wait"},
};

struct ForeignSpelling {
  std::string_view typed;
  std::string_view meant;
};
constexpr ForeignSpelling option_habits[] = {
    {"-f", "force"},          {"-S", "server"},           {"--address", "server"},
    {"--endpoint", "server"}, {"--expire", "ttl"},        {"--expires", "ttl"},
    {"--host", "server"},     {"--lease", "ttl"},         {"--lock", "key"},
    {"--name", "key"},        {"--no-wait", "nonblock"},  {"--nowait", "nonblock"},
    {"--redis", "server"},    {"--skip", "nonblock"},     {"--try", "nonblock"},
    {"--url", "server"},      {"--wait-timeout", "wait"}, {"-T", "token"},
};

constexpr std::string_view under_lock = "dlock run -k KEY -- COMMAND";
constexpr std::string_view by_force = "dlock release KEY --force";
constexpr ForeignSpelling command_habits[] = {
    {"lock", "dlock run -k KEY -- COMMAND, or dlock acquire"},
    {"flock", under_lock},
    {"exec", under_lock},
    {"try", "dlock run -n -k KEY -- COMMAND"},
    {"hold", "dlock run -k KEY -- COMMAND, or dlock acquire"},
    {"wait", "dlock run -k KEY -w DUR -- COMMAND, or dlock latch wait"},
    {"unlock", "dlock release"},
    {"free", by_force},
    {"break", by_force},
    {"kill", by_force},
    {"steal", by_force},
    {"force-unlock", by_force},
    {"rm", by_force},
    {"del", by_force},
    {"delete", by_force},
    {"remove", by_force},
    {"extend", "dlock renew"},
    {"refresh", "dlock renew"},
    {"list", "dlock inspect"},
    {"ls", "dlock inspect"},
    {"ps", "dlock inspect"},
    {"show", "dlock inspect"},
    {"status", "dlock inspect"},
    {"info", "dlock inspect"},
    {"get", "dlock inspect"},
    {"who", "dlock inspect"},
    {"watch", "dlock inspect --watch"},
    {"check", "dlock doctor"},
    {"ping", "dlock doctor"},
    {"version", "dlock --version"},
};

std::string_view meant_by(std::string_view typed, std::span<const ForeignSpelling> table) {
  for (const ForeignSpelling& each : table) {
    if (each.typed == typed) return each.meant;
  }
  return "";
}

}  // namespace

std::optional<std::string> refusal_of(std::string_view spelled) {
  for (const FlagOfFlock& each : refusal_table) {
    if (spelled == each.letter || spelled == each.name) return each.instead;
  }
  return std::nullopt;
}

std::string_view option_meant(std::string_view spelled) { return meant_by(spelled, option_habits); }

std::string_view command_meant(std::string_view name) { return meant_by(name, command_habits); }

}  // namespace dlock
