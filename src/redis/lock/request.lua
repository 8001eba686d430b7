-- The whole protocol of one lock, run inside the server: every operation reads and changes the
-- lock's keys in one step. The client's half is redis_store.cpp and protocol_text.cpp. The files of
-- this folder become one script, in the order that CMakeLists.txt names them: this one begins it.
--
-- KEYS  1 holds    hash   token -> "flag floor at since fence lease ttl limit owner who"
--       2 queue    zset   ticket -> token
--       3 waiters  hash   token -> "seen told channel proposal floor lease ttl limit owner who"
--       4 fence    string the last fence granted, and behind it of whom: "fence at lease ttl limit
--                         owner who"
--       5 alive    string "run_id since flag", of a member of a quorum alone: see quarantine.lua
-- A waiter to which nobody listens has ! and when its place ends for its channel: see queue.lua.
-- All times are microseconds of this server's clock but lease, ttl and floor, which are
-- milliseconds; limit 0 is "no limit"; flag is h held, p provisional (handed over, not confirmed),
-- k kept (--min-hold, the work is over), t tombstone (the token must never be granted again; who is
-- then the one that evicted it, with the reason for a label, or "-" after a release). The
-- proposal is the fence that a waiter proposed when it asked last, or "-". The hash of the holds
-- lives as long as the longest of them.
--
-- ARGV  1 operation  2 token  3 a word for this server where the lock may come to live on another,
--       or "": who waits puts it behind its channel, as channel@word; then
--   acquire  4 " lease ttl limit owner who"  5 floor  6 life (the larger of ttl and floor), and of
--            who waits 7 ticket or ""  8 channel
--   renew    4 ttl, or "" for the grant's own
--   release  nothing more, or 4 unsure 0|1  5 ignore the floor 0|1  6 ttl (of a tombstone)
--   force    4 fence, or "" for everybody  5 who evicts, if that is to be known (token unused)
--   tidy     nothing more: lets the queue in       (token unused)
-- of a member of a quorum also
--   acquire  7 and 8 "" of who does not wait  9 the fence it proposes
--   renew    5 the fence to raise the hold's to, if any
--   rejoin   4 to 6 as acquire, 7 the fence it has elsewhere, and gets here; where another is inside
--            it waits first in the queue, with = for its channel and that fence for its proposal
--   record_process  2 run_id  4 flag: see quarantine.lua
--
-- Replies, with a blank between items where no holds are among them, else as a list: granted fence
-- more; refused why ticket ahead waiting, ask again in ms, owners now more hold ... (8 at most) with
-- why = held | upgrade | gone; renewed lease fence limit more; gone more; released | left | absent
-- more; forced now more hold ...; tidied more. more = 1: waiters remain to be looked at; call tidy.
-- Behind the more of gone and absent stands who evicted the hold, where that is known.
-- A rejoin is answered as a renew. A member adds: how many ms it stays guarded, "run_id/flag" of its
-- key alive or "-" without one; that is the whole reply to
-- record_process.
-- The channel <holds key>:<channel> hears "grant <now> <lease> <fence> <word>", "next <ms>".

-- A local is found without a look into the table of globals.
local KEYS, ARGV = KEYS, ARGV
local call, op, token, key = redis.call, ARGV[1], ARGV[2], KEYS[1]
local fence_life, largest_fence = '604800', 9007199254740991  -- a larger one is none of ours
local time, now, stamp
