#include "support/history.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

namespace dlock::test {
namespace {

std::string told(const Held& held) {
  return held.who + " with fence " + std::to_string(held.fence) + (held.vague ? " in " : " from ") +
         std::to_string(held.first_ns) + " to " + std::to_string(held.last_ns);
}

std::string told(const Held& a, const Held& b) { return told(a) + "; " + told(b); }

bool begins_earlier(const Held& a, const Held& b) { return a.first_ns < b.first_ns; }

}  // namespace

Verdict judge(std::vector<Held> history) {
  Verdict verdict;
  std::stable_sort(history.begin(), history.end(), begins_earlier);
  std::map<std::int64_t, const Held*> by_fence;
  const Held* longest = nullptr;
  for (const Held& held : history) {
    const auto [same, fresh] = by_fence.try_emplace(held.fence, &held);
    if (!fresh) verdict.duplicates.push_back(told(*same->second, held));
    if (held.vague) continue;
    if (longest != nullptr && held.first_ns < longest->last_ns) {
      verdict.overlaps.push_back(told(*longest, held));
    }
    if (longest == nullptr || held.last_ns > longest->last_ns) longest = &held;
  }
  std::vector<const Held*> by_end;
  for (const Held& held : history) by_end.push_back(&held);
  std::stable_sort(by_end.begin(), by_end.end(),
                   [](const Held* a, const Held* b) { return a->last_ns < b->last_ns; });
  const Held* largest = nullptr;  // among the holds that ended before `held` begins
  auto next = by_end.begin();
  for (const Held& held : history) {
    for (; next != by_end.end() && (*next)->last_ns < held.first_ns; ++next) {
      if (largest == nullptr || (*next)->fence > largest->fence) largest = *next;
    }
    if (largest != nullptr && held.fence < largest->fence) {
      verdict.inversions.push_back(told(*largest, held));
    }
  }
  return verdict;
}

std::vector<Held> apart_from_stalls(std::vector<Held> history, const std::vector<Stall>& stalls) {
  constexpr std::chrono::nanoseconds a_moment = milliseconds(100);
  const auto ns = [](Deadline at) { return at.time_since_epoch().count(); };
  for (Held& held : history) {
    // Start with the last stall, as stalls may follow each other.
    for (auto stall = stalls.rbegin(); stall != stalls.rend(); ++stall) {
      if (held.vague || ns(stall->from) >= held.last_ns) continue;
      if (ns(stall->to) + a_moment.count() < held.last_ns) break;
      if (ns(stall->from) > held.first_ns) {
        held.last_ns = ns(stall->from);
      } else {
        held.vague = true;
      }
    }
  }
  return history;
}

std::size_t most_at_once(const std::vector<Held>& history) {
  std::vector<std::pair<std::int64_t, int>> changes;
  for (const Held& held : history) {
    if (held.vague) continue;
    changes.emplace_back(held.first_ns, 1);
    changes.emplace_back(held.last_ns, -1);
  }
  std::sort(changes.begin(), changes.end());  // at the same moment, ends sort before begins
  int inside = 0;
  int most = 0;
  for (const auto& [at, change] : changes) most = std::max(most, inside += change);
  return static_cast<std::size_t>(most);
}

std::vector<Held> held_in(std::string_view beats) {
  std::map<std::pair<std::int64_t, std::int64_t>, Held> by_process;
  for (; beats.size() >= sizeof(Beat); beats.remove_prefix(sizeof(Beat))) {
    Beat beat{};
    std::memcpy(&beat, beats.data(), sizeof beat);
    Held fresh{beat.fence, beat.before_ns, beat.after_ns, false,
               "process " + std::to_string(beat.pid)};
    Held& held = by_process.try_emplace({beat.pid, beat.fence}, std::move(fresh)).first->second;
    held.first_ns = std::min(held.first_ns, beat.before_ns);
    held.last_ns = std::max(held.last_ns, beat.after_ns);
  }
  std::vector<Held> all;
  for (auto& [process, held] : by_process) all.push_back(std::move(held));
  return all;
}

}  // namespace dlock::test
