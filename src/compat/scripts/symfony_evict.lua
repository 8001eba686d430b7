-- KEYS: the lock. ARGV: the victims, as a run with an empty argument returns them.
-- A set with other members does not come from Symfony, and its members are not expired leases.
local function is_foreign(members)
  for _, member in ipairs(members) do
    local is_token = #member == 44 and string.find(member, '^[%w+/]+=$') or
      #member == 22 and string.find(member, '^[%w_-]+$')
    if member ~= '__write__' and not is_token then return true end
  end
  return false
end

local found = redis.call('ZRANGE', KEYS[1], 0, -1)
if not found[1] then return {0} end
if is_foreign(found) then return {-1, 'a sorted set that Symfony did not write'} end
if ARGV[1] == '' then
  return {1, redis.call('PTTL', KEYS[1]), found[1], found[2] or '', table.concat(found, ' ')}
end
local removed = 0
for member in string.gmatch(ARGV[1], '%S+') do
  if member ~= '__write__' then removed = removed + redis.call('ZREM', KEYS[1], member) end
end
-- `__write__` marks the exclusive holder, and may be the only member left.
if removed > 0 or #found == 1 then removed = removed + redis.call('ZREM', KEYS[1], '__write__') end
return {removed > 0 and 1 or 0}
