-- A count-down latch, run inside the server: every operation reads and changes it in one step. The
-- client's half is redis_latch.cpp.
--
-- KEYS  1 latch  zset  0 -> "=" and how many have to arrive and, where several servers decide, a
--                      blank and the generation; 1, 2, ... -> the IDs that arrived, in that order
--                      and no more than have to. Expires at the latch's end.
-- ARGV  1 operation, then
--   open    2 count  3 ttl in ms  4 each | last  5 generation  6 "" | clear | keep  7 the generation
--           that is displaced: with its arrivals, or they are kept  8... IDs known to have arrived
--   arrive  2 ID                  3 each | last
--   read    2 the first  3 the last of the IDs to be told, as they arrived
-- each: whoever listens is told of each arrival, for others may have been elsewhere; last: of the one
-- that opens the latch. None of them may be a caller who listens himself.
--
-- Replies: {count, arrived, left in ms, generation, ID ...}; {0, 0, 0, ""} where there is no latch.
-- The channel of the key's own name hears "arrived".

local operation = ARGV[1]
local head = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
local count, generation = string.match(head or '', '^=(%d+) ?(%w*)$')
count = tonumber(count)
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
