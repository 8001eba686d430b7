-- Part 9 of the script that request.lua describes: what only a member of a quorum is asked. KEYS
-- 1 to 5. ARGV 5 of renew, the fence to raise the hold's to; 4 to 7 of rejoin. rejoin() returns
-- the reply of a renew.

local raise_own, rejoin

if vouched then
  -- Unless a larger one was given out since.
  raise_own = function(fence)
    local own, last = holds[token], last_fence()
    local inside = own and (own.flag == 'h' or own.flag == 'p')
    if not (inside and fence) or last > tonumber(fence) then return end
    if tonumber(own.fence) < tonumber(fence) then agree(own.owner, fence) end
  end

  -- First in the queue, to be let in without a word once there is room.
  local function reserve(fence)
    call('ZADD', KEYS[2], 0, token)
    call('HSET', KEYS[3], token,
      stamp .. ' 0 ' .. reserved .. ' ' .. fence .. ' ' .. ARGV[5] .. ARGV[4])
    keep_queue()
  end

  local function is_inside(hold) return hold.flag == 'h' or hold.flag == 'p' end

  -- A hold that its owner entered further in may have come back before the outer one: then it goes
  -- by the inner owner. All holds of one owner share a fence, and no other owner has it; so an owner
  -- that is back already adopts nothing.
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

  -- Past queue and guard: the others remember this hold, so nobody else can have been let in.
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
