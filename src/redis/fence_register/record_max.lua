-- Remembers the largest fence that came to a resource: `dlock guard --state-key`.
--
-- KEYS  1 seal   string  the fence; never expires
-- ARGV  1 fence
--
-- Reply: the larger of the fence and the one that was there, which stays; "" where something else
-- than a fence is there.

local largest_fence = 9007199254740991
local seen = redis.pcall('GET', KEYS[1])
if type(seen) == 'table' then
  if string.find(seen.err, 'WRONGTYPE', 1, true) then return '' end
  return seen
end
if seen then
  local number = string.find(seen, '^%d+$') and tonumber(seen)
  if not number or number > largest_fence then return '' end
  if number > tonumber(ARGV[1]) then return seen end
end
-- Also where it is the same: a replica, which may not have the last one yet, refuses to be written.
redis.call('SET', KEYS[1], ARGV[1])
return ARGV[1]
