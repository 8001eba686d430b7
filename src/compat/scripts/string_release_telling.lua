-- KEYS: the lock, and the list that notifies waiters, if there is one. ARGV: the end of the value,
-- and the channels that notify waiters.
if string.sub(redis.call('GET', KEYS[1]) or '', -#ARGV[1]) ~= ARGV[1] then return 0 end
-- If the user has no right to publish, the lock is freed without a notification.
for i = 2, #ARGV do redis.pcall('PUBLISH', ARGV[i], KEYS[1]) end
redis.call('DEL', KEYS[1])
if KEYS[2] then
  redis.call('DEL', KEYS[2])
  redis.call('LPUSH', KEYS[2], 1)
  redis.call('PEXPIRE', KEYS[2], 1000)
end
return 1
