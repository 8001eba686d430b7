-- KEYS: the lock. ARGV: the field of the hold, the channel that tells waiters, and 1 in a Cluster.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
-- Where a user has no right to publish, the lock is free all the same, and nobody is told.
redis.pcall('PUBLISH', ARGV[2], '0')
-- A server before 7.0 does not know it, and then nobody listens by it.
if ARGV[3] == '1' then redis.pcall('SPUBLISH', ARGV[2], '0') end
redis.call('DEL', KEYS[1])
return 1
