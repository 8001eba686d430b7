-- Records the largest fence that a resource has seen: `dlock guard --state-key`.
--
-- KEYS  1 register  string  the fence; never expires
-- ARGV  1 fence
--
-- Reply: the larger of the given fence and the stored one, which is stored from then on; "" if the
-- key holds something else.

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
-- An equal fence gets a SET, too: a replica, which may lag behind, then refuses the request.
redis.call('SET', KEYS[1], ARGV[1])
return ARGV[1]
