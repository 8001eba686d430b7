-- The whole protocol of one lock, run inside the server: every operation reads and changes the
-- lock's keys in one step. The client's half is redis_store.cpp and protocol_text.cpp. The files of
-- this folder become one script, in the order that CMakeLists.txt names them: this one begins it.
--
-- KEYS  1 holds    hash   token -> "at since fence lease ttl limit flag floor owner who"
--       2 queue    zset   ticket -> token
--       3 waiters  hash   token -> "seen told channel lease ttl limit flag floor owner who"
--       4 fence    string the last fence granted
--       5 alive    string "run_id since flag", of a member of a quorum alone: see guard.lua
-- All times are microseconds of this server's clock but lease, ttl and floor, which are
-- milliseconds; limit 0 is "no limit"; flag is h held, p provisional (handed over, not confirmed),
-- k kept (--min-hold, the work is over), t tombstone (the token must never be granted again). The
-- flag of a waiter is h, and behind it the fence that it proposed when it asked last, if it did.
--
-- ARGV  1 operation, 2 token, then
--   acquire  3 " lease ttl limit h floor owner who"  4 owner  5 ttl  6 limit  7 floor
--            8 life (the larger of ttl and floor)  9 wait 0|1  10 ticket or ""  11 channel
--   renew    3 ttl, or "" for the grant's own
--   release  3 unsure 0|1  4 ignore the floor 0|1  5 ttl (how long a tombstone stays)
--   force    3 fence, or "" for everybody          (token unused)
--   tidy     nothing more: lets the queue in       (token unused)
-- of a member of a quorum also
--   acquire  12 the fence it proposes, or ""
--   renew    4 the fence to raise the hold's to, or ""
--   rejoin   3 to 8 as acquire, 9 the fence it has elsewhere, and gets here; where another is inside it waits first
--            in the queue, with = for its channel and that fence for its proposal
--   vouch    2 run_id  3 flag: see guard.lua
-- and last, for all: a word for this server where the lock may come to live on another, or "". Who
-- waits puts it behind its channel, as channel@word.
--
-- Replies: {"granted", fence, lease, now, more}; {"refused", why, ticket, ahead, waiting, ask again
-- in ms, owners, now, more, hold ... (8 at most)} with why = held | upgrade | gone; {"renewed",
-- lease, now, fence, more}; {"gone", more}; {"released" | "left" | "absent", more}; {"forced", now,
-- more, hold ...}; {"tidied", more}. more = 1: waiters remain to be looked at; call tidy. A rejoin is
-- answered as a renew. A member adds: how many ms it stays guarded, "run_id flag" of its key alive or
-- "" without one; that is the whole reply to vouch.
-- The channel <holds key>:<channel> hears "grant <now> <lease> <fence> <word>", "next <ms>".

local op, token = ARGV[1], ARGV[2]
local fence_life, largest_fence = '604800', 9007199254740991  -- a larger one is none of ours

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- A third of what it takes to write a number of 64 bits.
local stamp = string.format('%s%06d', time[1], time[2])
