-- Part 9 of the script that request.lua describes: the operations that only a member of a quorum
-- has. KEYS 1 to 5. ARGV 5 of renew, the fence to raise the hold's to; 4 to 7 of rejoin. rejoin()
-- returns the reply of a renew.

local raise_own, rejoin

if vouched then
  -- Raises the hold's fence, unless a larger one was granted since.
  raise_own = function(fence)
    local own, last = holds[token], last_fence()
    local inside = own and (own.flag == 'h' or own.flag == 'p')
    if not (inside and fence) or last > tonumber(fence) then return end
    if tonumber(own.fence) < tonumber(fence) then agree(own.owner, fence) end
  end

  -- Puts the hold first in the queue, to be admitted without a message once there is room.
  local function reserve(fence)
    call('ZADD', KEYS[2], 0, token)
    call('HSET', KEYS[3], token,
      stamp .. ' 0 ' .. reserved .. ' ' .. fence .. ' ' .. ARGV[5] .. ARGV[4])
    keep_queue()
  end

  local function is_inside(hold) return hold.flag == 'h' or hold.flag == 'p' end

  -- A re-entered hold may come back before the outer one, and is then stored under the inner owner.
  -- This moves it to the outer owner. The fence identifies it: all holds of one owner share a
  -- fence, and no other owner has it. An owner that is back already adopts nothing.
  local function adopt_inner(owner, fence)
    for _, hold in pairs(holds) do
      if is_inside(hold) and hold.owner == owner then return end
    end
    for id, hold in pairs(holds) do
      local below = string.sub(hold.owner, 1, #owner + 1) == owner .. '/'
      if is_inside(hold) and below and hold.fence == fence then
        hold.owner = owner
        store(id, hold)
      end
    end
    count_all()
  end

  -- Bypasses queue and quarantine: the other members remember this hold, so nobody else can have
  -- been granted the key.
  rejoin = function()
    local fence, asked = ARGV[7], requested()
    adopt_inner(asked.owner, fence)
    local verdict, outer = rule(asked.owner, asked.limit, true)
    local own = holds[token]
    if own and is_inside(own) then
      agree(own.owner, fence)
    elseif own then
      return renew()
    elseif verdict == 'enter' or verdict == 'fresh' then
      admit_again(token, asked, outer, fence)
    elseif verdict == 'full' then
      reserve(fence)
    end
    return renew()
  end
end
