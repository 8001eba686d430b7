#include "commands/deadlock.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/clock.hpp"
#include "base/process.hpp"

namespace dlock {
namespace {

struct Ancestor {
  pid_t pid;
  milliseconds age;
};

milliseconds age_of(const ProcessStat& stat) {
  const auto ticks_a_second = static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK));
  const milliseconds started(stat.started * 1000 / ticks_a_second);
  return passed_since(later(Deadline{}, started));
}

/// Process 1 started all others, and waits for none of them in particular.
std::vector<Ancestor> ancestors() {
  constexpr std::size_t deepest = 100;
  std::vector<Ancestor> above;
  for (pid_t pid = getppid(); pid > 1 && above.size() < deepest;) {
    const auto stat = stat_of(pid);
    above.push_back({pid, stat ? age_of(*stat) : milliseconds::max()});
    pid = stat ? stat->parent : 0;
  }
  return above;
}

/// Two containers may have one host name and the same pids: who is younger than the hold, as far as
/// ticks and two clocks can tell, is another process than the holder.
bool may_be_holder(const Ancestor& ancestor, const Holder& holder) {
  constexpr milliseconds inaccuracy{1000};
  return ancestor.pid == holder.who.pid && ancestor.age >= holder.held - inaccuracy;
}

}  // namespace

std::string deadlock_text(const Refusal& refusal) {
  if (refusal.why != Refusal::Reason::held) return "";
  const std::string host = this_process("", "").host;
  const auto above = ancestors();
  for (const Holder& holder : refusal.held_by) {
    const bool here = !holder.kept && holder.who.host == host;
    const bool started_us = std::any_of(above.begin(), above.end(), [&](const Ancestor& ancestor) {
      return may_be_holder(ancestor, holder);
    });
    if (!here || !started_us) continue;
    return "; pid " + std::to_string(holder.who.pid) +
           " started this dlock, so this is a deadlock if it waits for it: release the lock first, "
           "or give this dlock the holder's DLOCK_OWNER";
  }
  return "";
}

}  // namespace dlock
