-- KEYS: the lock. ARGV: the end of the value.
if string.sub(redis.call('GET', KEYS[1]) or '', -#ARGV[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
