-- KEYS: the lock, the fencing token where there is one. ARGV: the field of the hold, the lease in
-- ms; and, where waiters are to read the lease anew, the channel that tells them, and 1 in a
-- Cluster.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return {0} end
if ARGV[3] then
  redis.pcall('PUBLISH', ARGV[3], '0')
  if ARGV[4] == '1' then redis.pcall('SPUBLISH', ARGV[3], '0') end
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {1, KEYS[2] and tonumber(redis.call('GET', KEYS[2]) or 0) or 0}
