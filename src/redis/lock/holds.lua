-- The holds of the key, as one request finds and leaves them, and the rule that lets owners in.

local provisional_lease, head_patience, queue_life, waiters_told = 2000, 75000000, 120000, 3
local budget, holds, earliest_before = 500, {}, guard_end > 0 and 0 or math.huge
local owners, owner_count, least_limit = {}, 0, math.huge  -- owner -> one of its holds

local function is_live(hold) return hold.flag ~= 't' end
local function ends_at(hold) return hold.at + hold.lease * 1000 end

local function floor_left(hold)
  return math.ceil((math.min(hold.since, now) + hold.floor * 1000 - now) / 1000)
end

local function parse(value)
  local at, since, fence, lease, ttl, limit, flag, floor, owner, who =
    string.match(value, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ([hpkt]) (%d+) (%S+) (.*)$')
  if not at then return nil end
  return {at = math.min(at, now), since = tonumber(since), fence = fence, lease = tonumber(lease),
    ttl = tonumber(ttl), limit = tonumber(limit), flag = flag, floor = tonumber(floor),
    owner = owner, who = who}
end

local function packed(hold)
  return string.format('%.0f %.0f %s %.0f %.0f %.0f %s %.0f %s %s', hold.at, hold.since, hold.fence,
    hold.lease, hold.ttl, hold.limit, hold.flag, hold.floor, hold.owner, hold.who)
end

local function count_in(hold, id)
  if not is_live(hold) then return end
  local owner = hold.flag == 'k' and ' ' .. id or hold.owner
  if not owners[owner] then owner_count = owner_count + 1 end
  owners[owner] = hold
  if hold.limit > 0 then least_limit = math.min(least_limit, hold.limit) end
end

local function count_all()
  owners, owner_count, least_limit = {}, 0, math.huge
  for id, hold in pairs(holds) do count_in(hold, id) end
end

local function store(id, hold)
  holds[id] = hold
  redis.call('HSET', KEYS[1], id, packed(hold))
  local life = math.max(hold.flag == 'k' and 0 or hold.lease, floor_left(hold), 1)
  if redis.call('PTTL', KEYS[1]) < life then redis.call('PEXPIRE', KEYS[1], life) end
end

local function remove(id)
  holds[id] = nil
  redis.call('HDEL', KEYS[1], id)
end

-- Where the work of a hold is over and its floor is not, the key stays taken, by nobody.
local function drop_or_keep(id, hold)
  if (hold.flag ~= 'h' and hold.flag ~= 'p') or floor_left(hold) <= 0 then return remove(id) end
  hold.lease, hold.at, hold.flag, hold.owner = hold.floor, math.min(hold.since, now), 'k', '-'
  store(id, hold)
end

-- Reads all holds and drops what has expired; false if the hash is not a lock's.
local function load()
  local all = redis.call('HGETALL', KEYS[1])
  local expired = {}
  for i = 1, #all, 2 do
    local hold = parse(all[i + 1])
    if not hold then return false end
    holds[all[i]] = hold
    -- The clock went back: counted from now on, or the lease would last as long as the step.
    if tonumber(string.match(all[i + 1], '%d+')) > now then store(all[i], hold) end
    if ends_at(hold) <= now then
      expired[#expired + 1] = all[i]
    elseif is_live(hold) then
      earliest_before = math.min(earliest_before, ends_at(hold))
    end
  end
  for _, id in ipairs(expired) do drop_or_keep(id, holds[id]) end
  count_all()
  return true
end

local function unqueue(id)
  redis.call('ZREM', KEYS[2], id)
  redis.call('HDEL', KEYS[3], id)
end

-- A hold of the innermost live owner that is `owner` or stands above it.
local function outer_hold(owner)
  while owner and not owners[owner] do owner = string.match(owner, '^(.*)/[^/]*$') end
  return owners[owner]
end

-- 'enter' with the hold re-entered, 'fresh', 'upgrade' or 'full'.
local function rule(owner, limit, past_guard)
  local outer = outer_hold(owner)
  if outer then
    if limit == 0 or owner_count <= limit then return 'enter', outer end
    return 'upgrade'
  end
  if limit > 0 and owner_count + 1 > limit then return 'full' end
  if owner_count + 1 > least_limit then return 'full' end
  return (guard_end == 0 or past_guard) and 'fresh' or 'full'
end

local function next_fence(proposal)
  local least = now
  if proposal then
    least = math.max(now - furthest_proposal, math.min(now + furthest_proposal, proposal))
  end
  local last = tonumber(redis.call('GET', KEYS[4]) or 0) or 0
  return string.format('%.0f', last < largest_fence and math.max(last + 1, least) or least)
end

-- `hold` has the request's fields; verdict and outer come from rule().
local function admit(id, hold, verdict, outer, fence)
  if verdict == 'enter' then
    hold.owner, hold.fence = outer.owner, outer.fence
  else
    hold.fence = fence or next_fence(hold.proposal)
    redis.call('SET', KEYS[4], hold.fence, 'EX', fence_life)
  end
  hold.at, hold.since = now, now
  unqueue(id)
  store(id, hold)
  count_in(hold, id)
end
