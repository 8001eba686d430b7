-- KEYS: the lock, and the list that tells waiters, if one does. ARGV: the end of the value, the
-- channels that tell waiters.
if string.sub(redis.call('GET', KEYS[1]) or '', -#ARGV[1]) ~= ARGV[1] then return 0 end
-- Where a user has no right to publish, the lock is free all the same, and nobody is told.
for i = 2, #ARGV do redis.pcall('PUBLISH', ARGV[i], KEYS[1]) end
redis.call('DEL', KEYS[1])
if KEYS[2] then
  redis.call('DEL', KEYS[2])
  redis.call('LPUSH', KEYS[2], 1)
  redis.call('PEXPIRE', KEYS[2], 1000)
end
return 1
