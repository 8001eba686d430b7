-- KEYS: the lock, and the list that tells waiters, if one does. ARGV: the channel that does.
local lease = redis.call('PTTL', KEYS[1])
local found = redis.call('GETRANGE', KEYS[1], 0, 199)
if redis.call('DEL', KEYS[1]) == 0 then return {0} end
if ARGV[1] ~= '' then
  redis.call('PUBLISH', ARGV[1], KEYS[1])
elseif KEYS[2] then
  redis.call('DEL', KEYS[2])
  redis.call('LPUSH', KEYS[2], 1)
  redis.call('PEXPIRE', KEYS[2], 1000)
end
return {1, lease, found}
