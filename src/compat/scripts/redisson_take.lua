-- KEYS: the lock, the queue of a fair lock of the same name, and the fencing token if the layout
-- has one. ARGV: the field of the hold, the lease in ms.
if redis.call('EXISTS', KEYS[2]) == 1 then return {-1, 'a Redisson fair lock'} end
local is_free = redis.call('EXISTS', KEYS[1]) == 0
if is_free or redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  redis.call('HSET', KEYS[1], ARGV[1], 1)
  -- A late copy of a take must not shorten a lease that was renewed since.
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
  if not KEYS[3] then return {1, 0} end
  return {1, is_free and redis.call('INCR', KEYS[3]) or tonumber(redis.call('GET', KEYS[3]))}
end
if redis.call('HEXISTS', KEYS[1], 'mode') == 1 then return {-1, 'a Redisson read/write lock'} end
if redis.call('HLEN', KEYS[1]) > 1 then return {-1, 'a hash with several fields'} end
local field = redis.call('HKEYS', KEYS[1])[1]
if not string.find(field, '^[%x-]+:%-?%d+$') then
  return {-1, 'a hash that no client of Redisson wrote'}
end
return {0, redis.call('PTTL', KEYS[1]), string.sub(field, 1, 200)}
