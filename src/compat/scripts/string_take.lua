-- KEYS: the lock. ARGV: the value, the lease in ms, the end of the value.
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return {1, 0} end
local found = redis.call('GETRANGE', KEYS[1], 0, 199)
-- The answer to an earlier request was lost, or this request is late and the lease was renewed
-- since: the lease must not be shortened.
if string.sub(found, -#ARGV[3]) == ARGV[3] then
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
  return {1, 0}
end
return {0, redis.call('PTTL', KEYS[1]), found}
