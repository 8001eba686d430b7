-- KEYS: the lock, and the list that notifies waiters, if there is one. ARGV: the victim's name, as
-- a run with an empty name returns it, and the channels that notify waiters.
local value = redis.call('GET', KEYS[1])
if not value then return {0} end
local victim = redis.sha1hex(value)
if ARGV[1] == '' then
  return {1, redis.call('PTTL', KEYS[1]), string.sub(value, 1, 200), victim}
end
if victim ~= ARGV[1] then return {0} end
-- If the user has no right to publish, the lock is freed without a notification.
for i = 2, #ARGV do redis.pcall('PUBLISH', ARGV[i], KEYS[1]) end
redis.call('DEL', KEYS[1])
if KEYS[2] then
  redis.call('DEL', KEYS[2])
  redis.call('LPUSH', KEYS[2], 1)
  redis.call('PEXPIRE', KEYS[2], 1000)
end
return {1}
