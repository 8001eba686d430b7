-- KEYS: the lock. ARGV: the member of the hold.
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('ZREM', KEYS[1], '__write__')
return 1
