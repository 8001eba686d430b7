-- KEYS: the lock. ARGV: the member of the hold, the lease in ms.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local held_until = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not held_until or tonumber(held_until) <= now then return {0} end
local lease_end = string.format('%.0f', now + ARGV[2])
redis.call('ZADD', KEYS[1], lease_end, ARGV[1], lease_end, '__write__')
redis.call('PEXPIREAT', KEYS[1], lease_end)
return {1, 0}
