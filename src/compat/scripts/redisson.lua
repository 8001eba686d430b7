-- KEYS: the lock, the queue of a fair lock of the same name, and the fencing token if the layout
-- has one. ARGV: take, renew, keep, release or evict; the field of the hold, or of a victim the
-- field and its value; the lease in ms; the field; the channel that notifies waiters; and 1 in a
-- Cluster. Answers {1, fence}; {0, PTTL, fields} if a take is refused, and {0} otherwise; or {-1,
-- description} for another kind of lock.
local operation, field, lease = ARGV[1], ARGV[2], ARGV[3]
local takes, evicts = operation == 'take', operation == 'evict'
if (takes or evicts) and redis.call('EXISTS', KEYS[2]) == 1 then
  return {-1, 'a Redisson fair lock'}
end
local is_free = redis.call('EXISTS', KEYS[1]) == 0
if evicts then
  if redis.call('HLEN', KEYS[1]) ~= 1 then return {0} end
  if table.concat(redis.call('HGETALL', KEYS[1]), ' ') ~= field then return {0} end
elseif not (takes and is_free) and redis.call('HEXISTS', KEYS[1], field) == 0 then
  if not takes then return {0} end
  return {0, redis.call('PTTL', KEYS[1]), redis.call('HSCAN', KEYS[1], 0, 'COUNT', 4)}
end
if not takes and operation ~= 'renew' then
  -- If the user has no right to publish, the script notifies no waiters.
  redis.pcall('PUBLISH', ARGV[5], '0')
  -- Redis before 7.0 lacks SPUBLISH, so no client can listen in that way.
  if ARGV[6] == '1' then redis.pcall('SPUBLISH', ARGV[5], '0') end
end
if evicts or operation == 'release' then return {redis.call('DEL', KEYS[1]), 0} end
if takes then redis.call('HSET', KEYS[1], field, 1) end
-- A late copy of a take must not shorten a lease that was renewed since.
if not takes or redis.call('PTTL', KEYS[1]) < tonumber(lease) then
  redis.call('PEXPIRE', KEYS[1], lease)
end
if not KEYS[3] then return {1, 0} end
return {1, takes and is_free and redis.call('INCR', KEYS[3]) or
  tonumber(redis.call('GET', KEYS[3]) or 0)}
