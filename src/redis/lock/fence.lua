-- Part 4 of the script that request.lua describes: the fencing token of the next grant. KEYS 4. No
-- ARGV, no reply. Sets last_fence() and next_fence() for the parts after it. common_cases.lua
-- computes the fence of a free key itself, because a function would cost more than the rest of that
-- grant.

local function last_fence()
  return tonumber(string.match(call('GET', KEYS[4]) or '', '^%d+')) or 0
end

local function next_fence(proposal)
  local least = now
  if proposal then
    least = math.max(now - furthest_proposal, math.min(now + furthest_proposal, proposal))
  end
  local last = last_fence()
  return string.format('%.0f', last < largest_fence and math.max(last + 1, least) or least)
end
