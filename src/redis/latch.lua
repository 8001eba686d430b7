-- A count-down latch, run inside the server: every operation reads and changes it in one step. The
-- client's half is redis_store.cpp.
--
-- KEYS  1 latch  zset  0 -> "=" and how many have to arrive; 1, 2, ... -> the IDs that arrived, in
--                      that order and no more than have to. Expires at the latch's end.
-- ARGV  1 operation: open  2 count  3 ttl in ms
--                    arrive  2 ID
--                    read
--
-- Replies: {count, arrived, left in ms}; {0, 0, 0} if there is no latch. The arrival that opens the
-- latch sends "arrived" to the channel with the name of KEYS 1; its own client must not listen.

local operation = ARGV[1]
local head = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
local count = tonumber(string.match(head or '', '^=(%d+)$'))
if head and (not count or redis.call('PTTL', KEYS[1]) < 0) then
  return redis.error_reply('DLOCKDATA ' .. KEYS[1] .. ' is a sorted set, but not one of a latch')
end
local arrived = head and redis.call('ZCARD', KEYS[1]) - 1 or 0

if operation == 'open' then
  if not count then
    count = tonumber(ARGV[2])
    redis.call('ZADD', KEYS[1], 0, '=' .. ARGV[2])
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
  elseif count == tonumber(ARGV[2]) and redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
  end
end
if not count then return {0, 0, 0} end

-- Notify before writing: without the right to publish, the arrival fails and must not be counted.
if operation == 'arrive' and arrived < count and not redis.call('ZSCORE', KEYS[1], ARGV[2]) then
  arrived = arrived + 1
  if arrived == count then redis.call('PUBLISH', KEYS[1], 'arrived') end
  redis.call('ZADD', KEYS[1], arrived, ARGV[2])
end
return {count, arrived, redis.call('PTTL', KEYS[1])}
