-- What a member of a quorum alone is asked.

local raise_own, rejoin

if vouched then
  -- The last fence, and those of an owner's holds, which share one, become at least `fence`.
  local function raise(owner, fence, last)
    if last < tonumber(fence) then redis.call('SET', KEYS[4], fence, 'EX', fence_life) end
    for id, hold in pairs(holds) do
      local inside = hold.flag == 'h' or hold.flag == 'p'
      if inside and hold.owner == owner and tonumber(hold.fence) < tonumber(fence) then
        hold.fence = fence
        store(id, hold)
      end
    end
  end

  local function last_fence() return tonumber(redis.call('GET', KEYS[4]) or 0) or 0 end

  -- Unless a larger one was given out since.
  raise_own = function(fence)
    local own, last = holds[token], last_fence()
    local inside = own and (own.flag == 'h' or own.flag == 'p')
    if not inside or fence == '' or last > tonumber(fence) then return end
    if tonumber(own.fence) < tonumber(fence) then raise(own.owner, fence, last) end
  end

  -- Past queue and guard: the others remember this hold, so nobody else can have been let in.
  rejoin = function()
    local fence = ARGV[9]
    local verdict, outer = rule(ARGV[4], tonumber(ARGV[6]), true)
    if holds[token] then
      raise_own(fence)
    elseif verdict == 'enter' or verdict == 'fresh' then
      admit(token, requested(), 'enter', outer or {owner = ARGV[4], fence = fence})
      raise(holds[token].owner, fence, last_fence())
    end
    return renew()
  end
end
