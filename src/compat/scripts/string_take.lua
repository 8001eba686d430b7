-- KEYS: the lock. ARGV: the value, the lease in ms, the end of the value.
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return {1, 0} end
local found = redis.call('GETRANGE', KEYS[1], 0, 199)
-- The answer to an earlier request was lost.
if string.sub(found, -#ARGV[3]) == ARGV[3] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return {1, 0}
end
return {0, redis.call('PTTL', KEYS[1]), found}
