-- KEYS: the lock. ARGV: the end of the value, the lease in ms.
if string.sub(redis.call('GET', KEYS[1]) or '', -#ARGV[1]) == ARGV[1] then
  return {redis.call('PEXPIRE', KEYS[1], ARGV[2]), 0}
end
return {0}
