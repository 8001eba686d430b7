-- Who waits: is let in, is told, or has gone.

local function parse_waiter(value)
  local seen, told, channel, lease, ttl, limit, proposal, floor, owner, who =
    string.match(value or '', '^(%d+) (%d+) (%S+) (%d+) (%d+) (%d+) h(%d*) (%d+) (%S+) (.*)$')
  if not seen then return nil end
  return {seen = tonumber(seen), told = tonumber(told), channel = channel},
    {lease = tonumber(lease), ttl = tonumber(ttl),
    limit = tonumber(limit), flag = 'h', floor = tonumber(floor), owner = owner, who = who,
    proposal = tonumber(proposal)}
end

-- How many heard it; -1 where this user may not publish. That must not raise: the release that
-- tells the next in line has to go through all the same. Who queued up at another server than this
-- is on its way here after a failover, or hears it over the Cluster's bus, and keeps its turn.
local function tell(channel, message)
  local name, joined_at = string.match(channel, '^([^@]*)@?(.*)$')
  local heard = redis.pcall('PUBLISH', KEYS[1] .. ':' .. name, message)
  if type(heard) ~= 'number' then return -1 end
  return heard == 0 and joined_at ~= ARGV[#ARGV] and 1 or heard
end

-- Grants to the head of the queue for as long as the rule allows; returns 1 if the budget ran out.
local function let_in(self)
  while budget > 0 do
    local head = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
    if not head then return 0 end
    local waiter, hold = parse_waiter(redis.call('HGET', KEYS[3], head))
    budget = budget - 1
    if not waiter or (head ~= self and waiter.seen < now - head_patience) then
      unqueue(head)
    else
      local verdict, outer = rule(hold.owner, hold.limit)
      if verdict ~= 'fresh' and verdict ~= 'enter' then return 0 end
      if head == self then
        admit(head, hold, verdict, outer)
      else
        local fence = verdict == 'enter' and outer.fence or next_fence(hold.proposal)
        hold.lease, hold.flag = math.min(provisional_lease, hold.ttl), 'p'
        local heard = tell(waiter.channel,
          string.format('grant %s %.0f %s %s', stamp, hold.lease, fence, ARGV[#ARGV]))
        if heard < 0 then return 0 end
        if heard == 0 then unqueue(head) else admit(head, hold, verdict, outer, fence) end
      end
    end
  end
  return redis.call('EXISTS', KEYS[2])
end

local function earliest_end()
  if guard_end > 0 then return guard_end end
  local earliest = math.huge
  for _, hold in pairs(holds) do
    earliest = math.min(earliest, is_live(hold) and ends_at(hold) or earliest)
  end
  return earliest
end

-- Tells the first few waiters when what blocks ends sooner than anyone was told: one alone might be
-- about to die. Who was told of a moment soon enough before will ask then, and is left in peace.
local function tell_next(self)
  local earliest = earliest_end()
  local place = earliest < earliest_before and 0 or waiters_told
  local message = string.format('next %.0f', math.ceil(math.min(earliest - now, 1e15) / 1000))
  while place < waiters_told do
    local id = redis.call('ZRANGE', KEYS[2], place, place)[1]
    if not id then return 0 end
    if budget == 0 then return 1 end
    budget = budget - 1
    local value = redis.call('HGET', KEYS[3], id)
    local waiter = parse_waiter(value)
    local soon = waiter and waiter.told > now and waiter.told <= earliest + provisional_lease * 1000
    local heard = (id == self or soon) and 1 or waiter and tell(waiter.channel, message) or 0
    if heard < 0 then return 0 end
    if heard > 0 then place = place + 1 else unqueue(id) end
    if heard > 0 and id ~= self and not soon then
      value = string.gsub(value, ' %d+', string.format(' %.0f', earliest), 1)
      redis.call('HSET', KEYS[3], id, value)
    end
  end
  return 0
end

local function settle(self)
  local more = let_in(self)
  return math.max(more, tell_next(self))
end
