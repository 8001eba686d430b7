-- A count-down latch, run inside the server: every operation reads and changes it in one step. The
-- client's half is redis_latch.cpp.
--
-- KEYS  1 latch  zset  0 -> "=" and the count of arrivals that opens the latch; in a quorum also a
--                      blank and the generation. 1, 2, ... -> the IDs that arrived, in that order,
--                      at most that count. Expires when the latch ends.
-- ARGV  1 operation, then
--   open    2 count  3 ttl in ms  4 each | last  5 generation  6 "" | clear | keep: removes or
--           keeps the arrivals of a displaced generation  7 that one  8... IDs that arrived
--   arrive  2 ID                  3 each | last
--   read    2 the first  3 the last index of the IDs to return, in the order of their arrival
-- each: every arrival is published, since others may have arrived at other servers; last: only the
-- one that opens the latch is. A caller of `open` or `arrive` must not listen to the channel.
--
-- Replies: {count, arrived, left in ms, generation, ID ...}; {0, 0, 0, ""} if there is no latch.
-- The channel with the key's own name receives "arrived".

local operation = ARGV[1]
local head = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
local count, generation = string.match(head or '', '^=(%d+) ?(%w*)$')
count = tonumber(count)
if head and (not count or redis.call('PTTL', KEYS[1]) < 0) then
  return redis.error_reply('DLOCKDATA ' .. KEYS[1] .. ' is a sorted set, but not one of a latch')
end
local arrived = head and redis.call('ZCARD', KEYS[1]) - 1 or 0

-- Publishes before it writes: if the user may not publish, the arrival must not be recorded.
local function enter(id, told)
  if arrived >= count or redis.call('ZSCORE', KEYS[1], id) then return end
  arrived = arrived + 1
  if told == 'each' or arrived == count then redis.call('PUBLISH', KEYS[1], 'arrived') end
  redis.call('ZADD', KEYS[1], arrived, id)
end

local function write_head(new)
  redis.call('ZADD', KEYS[1], 0, new)
  if head then redis.call('ZREM', KEYS[1], head) end
end

if operation == 'open' then
  local wanted, given = tonumber(ARGV[2]), ARGV[5]
  local new = '=' .. ARGV[2] .. (given ~= '' and ' ' .. given or '')
  if count and generation == ARGV[7] and generation ~= given then
    if ARGV[6] == 'clear' then
      redis.call('PEXPIRE', KEYS[1], 0)
      head, count, arrived = nil, nil, 0
    elseif ARGV[6] == 'keep' and count == wanted then
      write_head(new)
      generation = given
    end
  end
  if not count then
    count, generation = wanted, given
    write_head(new)
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
  end
  if count == wanted and (generation == given or given == '') then
    if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then
      redis.call('PEXPIRE', KEYS[1], ARGV[3])
    end
    for i = 8, #ARGV do enter(ARGV[i], ARGV[4]) end
  end
end
if not count then return {0, 0, 0, ''} end
if operation == 'arrive' then enter(ARGV[2], ARGV[3]) end

local answer = operation == 'read' and redis.call('ZRANGE', KEYS[1], ARGV[2], ARGV[3]) or {}
table.insert(answer, 1, generation)
table.insert(answer, 1, redis.call('PTTL', KEYS[1]))
table.insert(answer, 1, arrived)
table.insert(answer, 1, count)
return answer
