#pragma once

#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "local/directory.hpp"
#include "local/key_file.hpp"
#include "lock/work.hpp"
#include "rule/lock_table.hpp"

namespace dlock {

/// The result of refreshing a table.
struct Refreshed {
  bool changed = false;  ///< a hold or waiter was removed; signs of life do not count
  /// Why dlock cannot tell whether a holder still runs; empty if it can for every holder.
  std::string undecided;
};

/// Updates the table from the processes that dlock can see, before the rules run. The hold of a
/// living process counts as renewed at `now`, and a listening waiter as seen at `now`. A hold ends
/// if its dlock and its command have ended; it goes into cooldown if there was a command and a
/// min-hold. If its dlock has ended and the command may run in another pid namespace, the lease
/// decides. If this process has no /proc to look for the command, or may not open the FIFO, the
/// hold stays after its lease, and `undecided` says why. A hold that was handed over and never
/// confirmed is not renewed, because its waiter may be stopped. Removes dead waiters just before
/// `self`, so that `self` learns its true position, and the FIFOs of dead processes.
Refreshed refresh(LockTable& table, const Directory& directory, microseconds now,
                  const Token& self);

/// The work of the hold's command.
Work work_of(const HoldEntry& hold);

/// Whether refresh() at `now` found this hold alive, so that it needs no lease.
bool lives_by_process(const HoldEntry& hold, microseconds now);

/// Whether the host has rebooted since the table was written, according to its file's `written_in`
/// or, if that is unknown, to a BootClock that shows less than the table has recorded. A container
/// can fake a boot id, so the result is true only if no process of the table listens any more.
bool is_of_earlier_boot(const LockTable& table, KeyFile::Boot written_in,
                        const Directory& directory, microseconds now);

/// Updates a table from before a reboot, whose processes have all ended: ends the holds that live
/// by a process, and drops the queue. Leases and min-holds now count from the boot, the latest time
/// at which they can have begun, so that their end does not depend on when this is called.
void restart_after_boot(LockTable& table, const Directory& directory, microseconds now);

/// Descriptors to poll that become ready when an obstacle of `self` may be gone. The first waiter
/// watches the holders; every other waiter watches the one before it. So a kill -9 anywhere in the
/// queue wakes the next waiter, and only that one.
struct QueueWatch {
  std::vector<Fd> ends;
  bool first = false;       ///< self is first in the queue
  bool look_again = false;  ///< nothing to poll: processes are hidden by /proc, or just ended
};
QueueWatch watch_before(const LockTable& table, const Directory& directory, const Token& self);

}  // namespace dlock
