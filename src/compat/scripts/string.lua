-- KEYS: the lock, and the list that notifies waiters, if there is one. ARGV: take, renew, keep,
-- release or evict; the end of the value, or of a victim its first 200 bytes; the lease in ms; the
-- value; and the channels that notify waiters. Answers {1, 0}; {0, PTTL, value} if a take is
-- refused, and {0} otherwise.
local operation, mark, lease = ARGV[1], ARGV[2], ARGV[3]
if operation == 'take' and redis.call('SET', KEYS[1], ARGV[4], 'NX', 'PX', lease) then
  return {1, 0}
end
local value = redis.call('GET', KEYS[1])
if not value then return {0} end
local seen = string.sub(value, 1, 200)
local is_meant = string.sub(value, -#mark) == mark
if operation == 'evict' then is_meant = seen == mark end
if not is_meant then
  return operation == 'take' and {0, redis.call('PTTL', KEYS[1]), seen} or {0}
end
if operation == 'release' or operation == 'evict' then
  -- If the user has no right to publish, the script frees the lock without a notification.
  for i = 5, #ARGV do redis.pcall('PUBLISH', ARGV[i], KEYS[1]) end
  redis.call('DEL', KEYS[1])
  if KEYS[2] then
    redis.call('DEL', KEYS[2])
    redis.call('LPUSH', KEYS[2], 1)
    redis.call('PEXPIRE', KEYS[2], 1000)
  end
  return {1, 0}
end
-- The client has repeated this take, because its first answer was lost, or it is a late copy. It
-- must not shorten a lease that was renewed since.
if operation == 'take' and redis.call('PTTL', KEYS[1]) >= tonumber(lease) then return {1, 0} end
return {redis.call('PEXPIRE', KEYS[1], lease), 0}
