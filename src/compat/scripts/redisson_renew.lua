-- KEYS: the lock, and the fencing token if the layout has one. ARGV: the field of the hold, the
-- lease in ms; and, to make waiters read the lease anew, the channel that notifies them, and 1 in a
-- Cluster.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return {0} end
if ARGV[3] then
  redis.pcall('PUBLISH', ARGV[3], '0')
  if ARGV[4] == '1' then redis.pcall('SPUBLISH', ARGV[3], '0') end
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {1, KEYS[2] and tonumber(redis.call('GET', KEYS[2]) or 0) or 0}
