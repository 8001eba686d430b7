#include "local/dead_holders.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "local/wake_fifo.hpp"

namespace dlock {
namespace {

/// A waiter watches at most this many of a command's processes at once; when one of them ends, the
/// waiter looks for the rest.
constexpr std::size_t most_watched = 16;
/// A waiter silent for this long stays if it still listens: the host may have been suspended.
constexpr std::chrono::seconds silence_worth_a_look{60};

bool listens(const Directory& directory, const std::string& mailbox) {
  return reach(directory, mailbox).how == Reached::How::listening;
}

/// Whether the dlock of the hold, or at least its command, is alive.
Life life_behind(const HoldEntry& hold, const Directory& directory) {
  const HolderIdentity& backing = hold.backing;
  const Life process = process_life(backing.process);
  if (process == Life::alive) return Life::alive;
  if (process == Life::unknown) {
    return listens(directory, backing.mailbox) ? Life::alive : Life::unknown;
  }
  // `unknown` counts as alive: processes that /proc hides may belong to the command.
  return work_life(work_of(hold)) == Life::over ? Life::over : Life::alive;
}

/// Why the lease cannot decide about a hold whose state is unknown; empty if it can.
std::string obstacle(const HoldEntry& hold, const Directory& directory) {
  const std::string& fifo = hold.backing.mailbox;
  std::string why;
  if (reach(directory, fifo).how == Reached::How::closed) {
    why = "its FIFO " + directory.shown(fifo) + " may not be opened";
  } else if (own_process().pid_space == 0 && hold.backing.command.pid > 0) {
    why = "/proc is not mounted here";
  } else {
    return {};
  }
  return "cannot tell whether the command of " + escaped(hold.who.host) + " pid " +
         std::to_string(hold.who.pid) + " still runs: " + why;
}

bool goes_by_process(const HoldEntry& hold) { return hold.inside() && hold.backing.by_process; }

/// Whether BootClock shows less than the table has recorded.
bool clock_went_back(const LockTable& table, microseconds now) {
  return table.last_ask > now ||
         std::any_of(table.holds.begin(), table.holds.end(),
                     [&](const HoldEntry& hold) { return hold.at > now; }) ||
         std::any_of(table.queue.begin(), table.queue.end(),
                     [&](const WaiterEntry& waiter) { return waiter.seen > now; });
}

bool any_listens(const LockTable& table, const Directory& directory) {
  const auto listening = [&](const auto& entry) {
    return listens(directory, entry.backing.mailbox);
  };
  return std::any_of(table.holds.begin(), table.holds.end(), listening) ||
         std::any_of(table.queue.begin(), table.queue.end(), listening);
}

/// Removes the FIFO of a hold whose processes have ended. dlock records the command before the
/// command starts: without that record, no work was done and min-hold does not apply.
void end_process_of(HoldEntry& hold, const Directory& directory) {
  remove_mailbox(directory, hold.backing.mailbox);
  if (hold.backing.command.pid == 0) hold.min_hold = milliseconds(0);
}

void watch_holder(QueueWatch& watch, const Directory& directory, const HoldEntry& hold) {
  const HolderIdentity& backing = hold.backing;
  const Life process = process_life(backing.process);
  if (process == Life::unknown) {
    auto reached = reach(directory, backing.mailbox);
    if (reached.fd) watch.ends.push_back(std::move(reached.fd));
    return;
  }
  if (Fd end = process == Life::alive ? process_end(backing.process) : Fd()) {
    watch.ends.push_back(std::move(end));
    return;
  }
  auto ends = work_ends(work_of(hold), most_watched);
  if (ends.empty()) watch.look_again = true;
  std::move(ends.begin(), ends.end(), std::back_inserter(watch.ends));
}

}  // namespace

Work work_of(const HoldEntry& hold) {
  return {owner_in(hold.token), hold.backing.command, hold.backing.process.started};
}

Refreshed refresh(LockTable& table, const Directory& directory, microseconds now,
                  const Token& self) {
  Refreshed result;
  expire_holds(table, now, [&](HoldEntry& hold) {
    if (!goes_by_process(hold)) return false;
    const Life life = life_behind(hold, directory);
    if (life == Life::alive && hold.flag == Flag::held) hold.at = now;
    if (life == Life::unknown && left_of(hold, now) <= microseconds(0)) {
      if (std::string why = obstacle(hold, directory); !why.empty()) {
        result.undecided = std::move(why);
        hold.at = now;
      }
    }
    if (life != Life::over) return false;
    result.changed = true;
    end_process_of(hold, directory);
    // The end of an attached script is its release, whether or not its daemon was faster.
    if (hold.who.via == Via::attach) note_end(table, hold.fence, {wall_now(), {}, {}});
    return true;
  });
  for (WaiterEntry& waiter : table.queue) {
    const bool silent = waiter.seen + silence_worth_a_look < now;
    if (!silent || !listens(directory, waiter.backing.mailbox)) continue;
    waiter.seen = now;
    table.last_ask = now;
  }
  auto own = table.find_waiter(self);
  if (own == table.queue.end()) return result;
  while (own != table.queue.begin() && is_gone(directory, (own - 1)->backing.mailbox)) {
    result.changed = true;
    remove_mailbox(directory, (own - 1)->backing.mailbox);
    own = table.queue.erase(own - 1);
  }
  return result;
}

bool lives_by_process(const HoldEntry& hold, microseconds now) {
  return hold.backing.by_process && hold.flag == Flag::held && hold.at == now;
}

bool is_of_earlier_boot(const LockTable& table, KeyFile::Boot written_in,
                        const Directory& directory, microseconds now) {
  if (written_in == KeyFile::Boot::current) return false;
  if (written_in == KeyFile::Boot::unknown && !clock_went_back(table, now)) return false;
  return !any_listens(table, directory);
}

void restart_after_boot(LockTable& table, const Directory& directory, microseconds now) {
  for (const WaiterEntry& waiter : table.queue) remove_mailbox(directory, waiter.backing.mailbox);
  table.queue.clear();
  expire_holds(table, now, [&](HoldEntry& hold) {
    hold.at = hold.since = microseconds(0);
    if (!goes_by_process(hold)) return false;
    end_process_of(hold, directory);
    return true;
  });
}

QueueWatch watch_before(const LockTable& table, const Directory& directory, const Token& self) {
  QueueWatch watch;
  const auto own = std::find_if(table.queue.begin(), table.queue.end(),
                                [&](const WaiterEntry& waiter) { return waiter.token == self; });
  if (own == table.queue.end()) return watch;
  watch.first = own == table.queue.begin();
  if (!watch.first) {
    auto reached = reach(directory, (own - 1)->backing.mailbox);
    // The previous waiter has died since refresh() looked.
    if (reached.how == Reached::How::gone) watch.look_again = true;
    if (reached.fd) watch.ends.push_back(std::move(reached.fd));
    return watch;
  }
  for (const HoldEntry& hold : table.holds) {
    if (goes_by_process(hold)) watch_holder(watch, directory, hold);
  }
  return watch;
}

}  // namespace dlock
