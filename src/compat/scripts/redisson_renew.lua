-- KEYS: the lock, the fencing token where there is one. ARGV: the field of the hold, the lease in ms.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return {0} end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {1, KEYS[2] and tonumber(redis.call('GET', KEYS[2]) or 0) or 0}
