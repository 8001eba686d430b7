#include "supervise/kill_tree.hpp"

#include <csignal>
#include <optional>

#include "base/wait.hpp"
#include "supervise/kill_cgroup.hpp"

namespace dlock {
namespace {

/// How long killed processes are waited for. Freeing many gigabytes takes seconds; what is stuck
/// in the kernel longer than this is reported.
constexpr std::chrono::seconds max_reap_wait{5};

/// While the tree dies, its processes end without telling us unless they are our children.
constexpr milliseconds sweep_interval{5};

bool ended_within(const Child& child, milliseconds limit) {
  pollfd end[] = {{child.fd(), POLLIN, 0}};
  poll_until(end, later(BootClock::now(), limit));
  return child.ended();
}

bool is_gone(Child& child) {
  return child.ended() && child.tree.beside(child.pid()) == ProcessTree::Beside::nobody;
}

void reap_all_until(Child& child, Deadline give_up) {
  while (child.tree.beside(child.pid()) == ProcessTree::Beside::unclear) {
    if (BootClock::now() >= give_up) return;
  }
}

}  // namespace

/// One sweep ends most trees. Whoever forks faster than a sweep is stopped first, and whoever may
/// not be signalled is killed by cgroup where that is possible.
std::vector<Survivor> kill_tree(Child& child, Signals& signals) {
  const Deadline give_up = later(BootClock::now(), max_reap_wait);
  const Hurry hurry;
  KillCgroup last_resort;
  child.tree.release_spares();
  std::optional<KernelReaps> kernel_reaps;
  for (bool first = true; true; first = false) {
    kill(child.pid(), SIGKILL);
    // Not before the child has ended: its number stays taken. From then on there are no zombies,
    // which a family that forks on and on makes faster than dlock reaps them.
    if (!kernel_reaps && ended_within(child, sweep_interval)) {
      kernel_reaps.emplace();
      reap_all_until(child, give_up);
    }
    if (!first) child.tree.freeze();
    const auto refused = child.tree.signal(SIGKILL);
    if (!refused.empty()) last_resort.kill(refused);
    if (is_gone(child)) return {};
    if (BootClock::now() >= give_up) return child.tree.survivors();
    pollfd fds[] = {{signals.fd(), POLLIN, 0}};
    poll_until(fds, later(BootClock::now(), sweep_interval));
    while (const auto event = signals.take()) {
      if (event->number == SIGCHLD) break;  // the next may be there already, and so without end
    }
  }
}

}  // namespace dlock
