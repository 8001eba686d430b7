-- KEYS: the lock. Its scores are the ends of leases; the member `__write__` marks the exclusive
-- holder. ARGV: take, renew, keep, release or evict; the member of the hold, or of a victim the
-- first two members; and the lease in ms. Answers {1, 0}; {0, PTTL, the first two members} if a
-- take is refused, and {0} otherwise.
local operation, member, lease = ARGV[1], ARGV[2], ARGV[3]
local found = redis.call('ZRANGE', KEYS[1], 0, 1)
if operation == 'evict' then
  if not found[1] or table.concat(found, ' ') ~= member then return {0} end
  return {redis.call('DEL', KEYS[1]), 0}
end
if operation == 'release' then
  if redis.call('ZREM', KEYS[1], member) == 0 then return {0} end
  redis.call('ZREM', KEYS[1], '__write__')
  return {1, 0}
end
local refusal = {0, redis.call('PTTL', KEYS[1]), found}
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
if operation == 'take' then
  -- Symfony did not write a set with other members: do not remove them like expired leases.
  for _, each in ipairs(found) do
    local is_token = #each == 44 and string.find(each, '^[%w+/]+=$') or
      #each == 22 and string.find(each, '^[%w_-]+$')
    if each ~= '__write__' and not is_token then return refusal end
  end
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
end
local held_until = tonumber(redis.call('ZSCORE', KEYS[1], member) or 0)
local lease_end = now + lease
if operation == 'take' then
  refusal[3] = redis.call('ZRANGE', KEYS[1], 0, 1)
  if held_until == 0 and refusal[3][1] then return refusal end
  -- A late copy of a take must not shorten a lease that was renewed since.
  lease_end = math.max(lease_end, held_until)
elseif held_until <= now then
  return {0}
end
local score = string.format('%.0f', lease_end)
redis.call('ZADD', KEYS[1], score, member, score, '__write__')
redis.call('PEXPIREAT', KEYS[1], score)
return {1, 0}
