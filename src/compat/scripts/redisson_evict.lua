-- KEYS: the lock, the queue of a fair lock of the same name. ARGV: the victim's name, as a run with
-- an empty name returns it, the channel that notifies waiters, and 1 in a Cluster.
if redis.call('EXISTS', KEYS[2]) == 1 then return {-1, 'a Redisson fair lock'} end
if redis.call('HEXISTS', KEYS[1], 'mode') == 1 then return {-1, 'a Redisson read/write lock'} end
local fields = redis.call('HLEN', KEYS[1])
if fields == 0 then return {0} end
if fields > 1 then return {-1, 'a hash with several fields'} end
local field = redis.call('HKEYS', KEYS[1])[1]
if not string.find(field, '^[%x-]+:%-?%d+$') then
  return {-1, 'a hash that no client of Redisson wrote'}
end
local victim = redis.sha1hex(field)
if ARGV[1] == '' then
  return {1, redis.call('PTTL', KEYS[1]), string.sub(field, 1, 200), victim}
end
if victim ~= ARGV[1] then return {0} end
-- If the user has no right to publish, the lock is freed without a notification.
redis.pcall('PUBLISH', ARGV[2], '0')
if ARGV[3] == '1' then redis.pcall('SPUBLISH', ARGV[2], '0') end
redis.call('DEL', KEYS[1])
return {1}
