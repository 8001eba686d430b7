-- KEYS: the lock. ARGV: the member of the hold, the lease in ms. The scores are the ends of leases.
-- A set with other members does not come from Symfony, and its members are not expired leases.
local function is_foreign(members)
  for _, member in ipairs(members) do
    local is_token = #member == 44 and string.find(member, '^[%w+/]+=$') or
      #member == 22 and string.find(member, '^[%w_-]+$')
    if member ~= '__write__' and not is_token then return true end
  end
  return false
end

if is_foreign(redis.call('ZRANGE', KEYS[1], 0, 1)) then
  return {-1, 'a sorted set that Symfony did not write'}
end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local held_until = redis.call('ZSCORE', KEYS[1], ARGV[1])
if held_until or redis.call('ZCARD', KEYS[1]) == 0 then
  -- A late copy of a take must not shorten a lease that was renewed since.
  local lease_end = string.format('%.0f', math.max(now + ARGV[2], tonumber(held_until or 0)))
  redis.call('ZADD', KEYS[1], lease_end, ARGV[1], lease_end, '__write__')
  redis.call('PEXPIREAT', KEYS[1], lease_end)
  return {1, 0}
end
local found = redis.call('ZRANGE', KEYS[1], 0, 1)
return {0, redis.call('PTTL', KEYS[1]), string.sub(found[1], 1, 200), string.sub(found[2] or '', 1, 200)}
