-- KEYS: the lock, and the list that tells waiters. ARGV: the end of the value, the channel that
-- tells waiters; empty where it is the list.
if string.sub(redis.call('GET', KEYS[1]) or '', -#ARGV[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
if ARGV[2] ~= '' then
  redis.call('PUBLISH', ARGV[2], KEYS[1])
else
  redis.call('DEL', KEYS[2])
  redis.call('LPUSH', KEYS[2], 1)
  redis.call('PEXPIRE', KEYS[2], 1000)
end
return 1
