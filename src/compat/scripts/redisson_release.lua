-- KEYS: the lock. ARGV: the field of the hold, the channel that notifies waiters, and 1 in a
-- Cluster.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
-- If the user has no right to publish, the lock is freed without a notification.
redis.pcall('PUBLISH', ARGV[2], '0')
-- Redis before 7.0 does not have SPUBLISH, and no client listens there then.
if ARGV[3] == '1' then redis.pcall('SPUBLISH', ARGV[2], '0') end
redis.call('DEL', KEYS[1])
return 1
