-- A count-down latch, run inside the server: every operation reads and changes it in one step. The
-- client's half is redis_latch.cpp.
--
-- KEYS  1 latch  zset  0 -> "=" and how many have to arrive; 1, 2, ... -> the IDs that arrived, in
--                      that order and no more than have to. Expires at the latch's end.
-- ARGV  1 operation, then
--   open    2 count  3 ttl in ms  4 each | last  5... IDs known to have arrived
--   arrive  2 ID                  3 each | last
--   read    2 the first  3 the last of the IDs to be told, as they arrived
-- each: whoever listens is told of each arrival, for others may have been elsewhere; last: of the one
-- that opens the latch. None of them may be a caller who listens himself.
--
-- Replies: {count, arrived, left in ms, ID ...}; {0, 0, 0} where there is no latch. The channel of
-- the key's own name hears "arrived".

local operation = ARGV[1]
local head = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
local count = head and tonumber(string.match(head, '^=(%d+)$'))
if head and (not count or redis.call('PTTL', KEYS[1]) < 0) then
  return redis.error_reply('DLOCKDATA ' .. KEYS[1] .. ' is a sorted set, but not one of a latch')
end
local arrived = head and redis.call('ZCARD', KEYS[1]) - 1 or 0

-- Told before it is written: whoever may not tell must not have arrived.
local function enter(id, told)
  if arrived >= count or redis.call('ZSCORE', KEYS[1], id) then return end
  arrived = arrived + 1
  if told == 'each' or arrived == count then redis.call('PUBLISH', KEYS[1], 'arrived') end
  redis.call('ZADD', KEYS[1], arrived, id)
end

if operation == 'open' then
  local ttl = tonumber(ARGV[3])
  if not count then
    count = tonumber(ARGV[2])
    redis.call('ZADD', KEYS[1], 0, '=' .. ARGV[2])
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
  elseif count == tonumber(ARGV[2]) and redis.call('PTTL', KEYS[1]) < ttl then
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
  end
  for i = 5, count == tonumber(ARGV[2]) and #ARGV or 0 do enter(ARGV[i], ARGV[4]) end
end
if not count then return {0, 0, 0} end
if operation == 'arrive' then enter(ARGV[2], ARGV[3]) end

local answer = operation == 'read' and redis.call('ZRANGE', KEYS[1], ARGV[2], ARGV[3]) or {}
table.insert(answer, 1, redis.call('PTTL', KEYS[1]))
table.insert(answer, 1, arrived)
table.insert(answer, 1, count)
return answer
