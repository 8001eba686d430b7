#include <algorithm>
#include <map>

#include "base/duration.hpp"
#include "doctor/judge.hpp"
#include "doctor/words.hpp"

namespace dlock {
namespace {

/// What a server's clock shows beyond this host's, by the quickest of its readings.
std::optional<microseconds> ahead_of_this_host(const ServerFacts& facts) {
  if (facts.clock.empty()) return std::nullopt;
  const auto nearest = std::min_element(facts.clock.begin(), facts.clock.end(),
                                        [](const ClockSample& a, const ClockSample& b) {
                                          return a.received - a.sent < b.received - b.sent;
                                        });
  return nearest->server - nearest->here;
}

/// How long it takes until so many have a vote.
milliseconds until_there_are(std::ptrdiff_t needed, const std::vector<ServerFacts>& servers) {
  std::vector<milliseconds> waits;
  for (const ServerFacts& each : servers) {
    if (each.unreachable.empty()) waits.push_back(each.quarantined_for.value_or(milliseconds(0)));
  }
  std::sort(waits.begin(), waits.end());
  return waits[static_cast<std::size_t>(needed) - 1];
}

Finding judge_votes(const std::vector<ServerFacts>& servers) {
  const std::string name = "majority";
  const auto reached = std::count_if(servers.begin(), servers.end(), [](const ServerFacts& each) {
    return each.unreachable.empty();
  });
  const auto all = static_cast<std::ptrdiff_t>(servers.size());
  const auto needed = all / 2 + 1;
  const std::string of = std::to_string(reached) + " of " + counted(all, "server") + " reached, " +
                         std::to_string(needed) + " needed";
  if (reached < needed) return bad(name, of + ": no lock can be taken", "bring the others back");
  if (const auto wait = until_there_are(needed, servers); wait > milliseconds(0)) {
    return bad(name, of + ": no lock can be taken for another " + human_duration(wait),
               "wait until enough of them have a vote again");
  }
  if (reached < all) {
    return warn(name, of + ": " + std::to_string(reached - needed) + " more may fail",
                "bring the others back");
  }
  if (all % 2 == 0) {
    return warn(name, of + ": no more of them may fail than of " + std::to_string(all - 1),
                "name an odd number");
  }
  return good(name, of + ": any " + std::to_string(all - needed) + " may fail");
}

Finding judge_independence(const std::vector<ServerFacts>& servers) {
  const std::string name = "independence";
  std::map<std::string, std::string> seen;
  for (const ServerFacts& each : servers) {
    const auto process = each.info.text("run_id");
    if (!process) continue;
    const auto [other, is_new] = seen.emplace(*process, each.endpoint.address());
    if (is_new) continue;
    return bad(name, other->second + " and " + each.endpoint.address() + " are the same server",
               "name each server once");
  }
  if (seen.empty()) return not_told(name, refusals(servers.front()));
  return good(name, "no server is named twice");
}

Finding judge_clocks(const std::vector<ServerFacts>& servers) {
  const std::string name = "clocks";
  constexpr std::chrono::seconds tolerable{60};
  std::optional<microseconds> least, most;
  for (const ServerFacts& each : servers) {
    const auto ahead = ahead_of_this_host(each);
    if (!ahead) continue;
    least = std::min(least.value_or(*ahead), *ahead);
    most = std::max(most.value_or(*ahead), *ahead);
  }
  if (!least) return not_told(name, "TIME");
  const auto apart = std::max(*most, microseconds(0)) - std::min(*least, microseconds(0));
  const std::string text = "at most " + span_text(apart) + " apart, this host's among them";
  if (apart < tolerable) return good(name, text);
  return bad(name, text + ": if a server loses its memory, fences may fall", "NTP on all of them");
}

}  // namespace

Findings judge_quorum(const std::vector<ServerFacts>& servers) {
  return {judge_votes(servers), judge_independence(servers), judge_clocks(servers),
          good("label",
               "at most one unexpired holder while clocks run at the same rate within 1 %, also "
               "when a minority fails or forgets")};
}

}  // namespace dlock
