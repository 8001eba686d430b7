-- KEYS: the lock.
-- A set with other members is not Symfony's: of its members none may be taken for a lease that ended.
local function is_foreign(members)
  for _, member in ipairs(members) do
    local is_token = #member == 44 and string.find(member, '^[%w+/]+=$') or
      #member == 22 and string.find(member, '^[%w_-]+$')
    if member ~= '__write__' and not is_token then return true end
  end
  return false
end

local found = redis.call('ZRANGE', KEYS[1], 0, 1)
if not found[1] then return {0} end
if is_foreign(found) then return {-1, 'a sorted set that Symfony did not write'} end
local lease = redis.call('PTTL', KEYS[1])
redis.call('DEL', KEYS[1])
return {1, lease, string.sub(found[1], 1, 200), string.sub(found[2] or '', 1, 200)}
