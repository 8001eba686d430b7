-- Part 3 of the script that request.lua describes: the time limits of waiting, replies nothing.

-- The lease of a grant by message, until its waiter confirms it. On a single server the command is
-- running by then, so the lease outlives a hiccup of some seconds. If such a grant expired
-- unconfirmed within `lapse_memory`, the next waiters may be frozen, too, and get a shorter lease.
local provisional_lease, doubted_lease, lapse_memory = KEYS[5] and 2000 or 6000, 1000, 30000
local longest_silence, queue_life, known_end_slack = 75000000, 120000, 1000
-- How many waiters at the head of the queue know when the blocking hold ends, and how many get a
-- message together if one of them does not. Most hand-overs then wake only the new holder.
local waiters_notified, notified_together = 3, 8
-- How long a waiter without a listener keeps its position, and how many such waiters at the head of
-- the queue do.
local longest_absence, most_absent = 1000000, 32
