#pragma once

#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "local/directory.hpp"
#include "local/key_file.hpp"
#include "rule/lock_table.hpp"

namespace dlock {

/// What bringing a table up to date came to.
struct Refreshed {
  bool changed = false;  ///< somebody was removed; mere signs of life are not news
  std::vector<std::string> left_mailboxes;  ///< of the dead
  /// Why nobody can say whether one of the holders still runs; empty if all can be judged.
  std::string undecided;
};

/// Applies what can be seen of the processes, before the rules: a hold of a living one is as good
/// as renewed at `now`, a waiter that listens as good as seen; a hold whose dlock and command have
/// gone ends (a floor stays if there was a command). If its dlock has gone and its command runs, if
/// at all, in another pid namespace, the lease decides. If this process has no /proc to look for
/// the command, or may not open the FIFO, the hold stays after its lease, and `undecided` says why.
/// A hold that was handed over and never confirmed is not renewed: its waiter may be stopped.
Refreshed refresh(LockTable& table, const Directory& directory, microseconds now);

/// Whether refresh() at `now` found this hold alive, so that it needs no lease.
bool lives_by_process(const HoldEntry& hold, microseconds now);

/// Whether the clock of leases shows less than the table has recorded: the host was booted since.
bool clock_went_back(const LockTable& table, microseconds now);

/// Whether a process named in the table listens at its FIFO, so that the host was not booted since.
/// The kernel alone answers: no boot id that a container shows can fake it.
bool any_listens(const LockTable& table, const Directory& directory);

/// Whether a waiter in the queue may be alive.
bool any_waiter_lives(const LockTable& table, const Directory& directory);

/// Whether the host was booted since the table was written, as its file says by `written_in`. A
/// boot id is believed only if no process of the table lives on.
bool is_of_earlier_boot(const LockTable& table, KeyFile::Boot written_in,
                        const Directory& directory, microseconds now);

/// The host was booted after the table was written, and every process has gone: holds by process
/// end, the queue is void. Leases and floors count from the boot, the latest moment at which they
/// can have begun, so that they end at the same time whenever, and however often, they are seen.
Refreshed restart_after_boot(LockTable& table, microseconds now);

/// Removes dead waiters that stand directly before `self`, so that it learns its true place.
Refreshed drop_dead_before(LockTable& table, const Directory& directory, const Token& self);

/// Things to poll that become ready when somebody in the way of `self` may have gone: for the first
/// in the queue what blocks it, for any other the one before it, so that kill -9 anywhere in the
/// queue leaves nobody without a watch and never wakes more than one.
struct Watch {
  std::vector<Fd> ends;
  bool first = false;       ///< self is first in the queue
  bool look_again = false;  ///< a group whose members /proc hides: nothing to poll
};
Watch watch_before(const LockTable& table, const Directory& directory, const Token& self);

}  // namespace dlock
