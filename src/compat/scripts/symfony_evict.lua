-- KEYS: the lock.
local found = redis.call('ZRANGE', KEYS[1], 0, 1)
if not found[1] then return {0} end
local lease = redis.call('PTTL', KEYS[1])
redis.call('DEL', KEYS[1])
return {1, lease, string.sub(found[1], 1, 200), string.sub(found[2] or '', 1, 200)}
