-- The whole protocol of one lock, run inside the server: every operation reads and changes the
-- lock's keys in one step. The client's half is redis_store.cpp and protocol_text.cpp. The files of
-- this folder become one script, in the order that CMakeLists.txt names them: this one begins it,
-- and does what is asked most.
--
-- KEYS  1 holds    hash   token -> "at since fence lease ttl limit flag floor owner who"
--       2 queue    zset   ticket -> token
--       3 waiters  hash   token -> "seen told channel lease ttl limit flag floor owner who"
--       4 fence    string the last fence granted
-- All times are microseconds of this server's clock but lease, ttl and floor, which are
-- milliseconds; limit 0 is "no limit"; flag is h held, p provisional (handed over, not confirmed),
-- k kept (--min-hold, the work is over), t tombstone (the token must never be granted again).
--
-- ARGV  1 operation, 2 token, then
--   acquire  3 " lease ttl limit h floor owner who"  4 owner  5 ttl  6 limit  7 floor
--            8 life (the larger of ttl and floor)  9 wait 0|1  10 ticket or ""  11 channel
--   renew    3 ttl, or "" for the grant's own
--   release  3 unsure 0|1  4 ignore the floor 0|1  5 ttl (how long a tombstone stays)
--   force    3 fence, or "" for everybody          (token unused)
--   tidy     nothing more: lets the queue in       (token unused)
-- and last, for all: a word for this server where the lock may come to live on another, or "". Who
-- waits puts it behind its channel, as channel@word.
--
-- Replies: {"granted", fence, lease, now, more}; {"refused", why, ticket, ahead, waiting, ask again
-- in ms, owners, now, more, hold ... (8 at most)} with why = held | upgrade | gone; {"renewed",
-- lease, now, fence, more}; {"gone", more}; {"released" | "left" | "absent", more}; {"forced", now,
-- more, hold ...}; {"tidied", more}. more = 1: waiters remain to be looked at; call tidy.
-- The channel <holds key>:<channel> hears "grant <now> <lease> <fence> <word>", "next <ms>".

local op, token = ARGV[1], ARGV[2]
local fence_life, largest_fence = 604800, 9007199254740991  -- a larger one is none of ours

-- A free key with nobody waiting: the common case stands before any function is made.
if op == 'acquire' and redis.call('EXISTS', KEYS[1], KEYS[2]) == 0 then
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local stamp = string.format('%.0f', now)
  local fence = stamp
  local last = tonumber(redis.call('SET', KEYS[4], stamp, 'EX', fence_life, 'GET') or 0) or 0
  if last >= now and last < largest_fence then
    fence = string.format('%.0f', last + 1)
    redis.call('SET', KEYS[4], fence, 'EX', fence_life)
  end
  redis.call('HSET', KEYS[1], token, stamp .. ' ' .. stamp .. ' ' .. fence .. ARGV[3])
  redis.call('PEXPIRE', KEYS[1], ARGV[8])
  return {'granted', fence, ARGV[5], stamp, 0}
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local stamp = string.format('%.0f', now)

-- Renewal and release of a hold nobody waits for: the other common cases. PEXPIRE and HDEL come
-- first because a server out of memory runs those, and then lets the rest of the script write.
local own_value = (op == 'renew' or op == 'release') and redis.call('HGET', KEYS[1], token)
if own_value and redis.call('EXISTS', KEYS[2]) == 0 then
  local at, since, fence, lease, ttl, limit, flag, floor, rest =
    string.match(own_value, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ([hp]) (%d+)( .*)$')
  local live = at and math.min(at, now) + lease * 1000 > now
  if live and floor == '0' and op == 'renew' then
    lease = ARGV[3] == '' and ttl or ARGV[3]
    local life = math.max(lease, redis.call('PTTL', KEYS[1]))
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', life))
    redis.call('HSET', KEYS[1], token,
      table.concat({stamp, since, fence, lease, ttl, limit, 'h', floor}, ' ') .. rest)
    return {'renewed', lease, stamp, fence, 0}
  end
  if live and op == 'release' and ARGV[3] == '0' and (floor == '0' or ARGV[4] == '1') then
    redis.call('HDEL', KEYS[1], token)
    return {'released', 0}
  end
end
