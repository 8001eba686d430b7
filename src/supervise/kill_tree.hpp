#pragma once

#include <vector>

#include "supervise/child.hpp"
#include "supervise/signals.hpp"

namespace dlock {

/// Kills the child with all it started, and waits until nothing of it is left, for some seconds at
/// most. Called by supervise() when the grace is over; returns what could not be killed.
std::vector<Survivor> kill_tree(Child& child, Signals& signals);

}  // namespace dlock
