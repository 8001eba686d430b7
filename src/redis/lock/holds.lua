-- Part 5 of the script that request.lua describes: functions, which reply nothing. KEYS 1 to 4, no
-- ARGV.
--
-- They read and change the holds of the key.

local changed, budget, holds = false, 500, {}
local earliest_before = quarantine_end > 0 and 0 or math.huge
local has_lapsed = false  -- a grant that its waiter did not confirm
local owners, owner_count, least_limit = {}, 0, math.huge  -- owner -> one of its holds
local cooldown_count = 0  -- how many of owner_count are in cooldown, without an owner
local readers, seats = {}, {}  -- owners with an unlimited hold; owners with a limit above 1

local function is_live(hold) return hold.flag ~= 't' end
local function is_held(hold) return hold.flag == 'h' or hold.flag == 'p' end
local function ends_at(hold) return hold.at + hold.lease * 1000 end

local function min_hold_left(hold)
  return math.ceil((math.min(hold.since, now) + hold.min_hold * 1000 - now) / 1000)
end

local function parse(value)
  local flag, min_hold, at, since, fence, lease, ttl, limit, owner, who =
    string.match(value, '^([hpkt]) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (.*)$')
  if not flag then return nil end
  return {flag = flag, min_hold = tonumber(min_hold), at = math.min(at, now),
    from_ahead = tonumber(at) > now, since = tonumber(since), fence = fence,
    lease = tonumber(lease), ttl = tonumber(ttl), limit = tonumber(limit), owner = owner, who = who}
end

local function packed(hold)
  return string.format('%s %.0f %.0f %.0f %s %.0f %.0f %.0f %s %s', hold.flag, hold.min_hold,
    hold.at, hold.since, hold.fence, hold.lease, hold.ttl, hold.limit, hold.owner, hold.who)
end

-- Records the last grant of the key.
local function note_grant(hold)
  call('SET', KEYS[4], string.format('%s %.0f %.0f %.0f %.0f %s %s', hold.fence, hold.since,
    hold.lease, hold.ttl, hold.limit, hold.owner, hold.who), 'EX', fence_life)
end

-- Records the end of a hold; `how` as in the fence's entry.
local function note_end(hold, how)
  if call('EXPIRE', KEYS[4], fence_life) == 1 then
    call('APPEND', KEYS[4], ' ;' .. hold.fence .. ' ' .. stamp .. ' ' .. how)
  end
end

local function count_in(hold, id)
  if not is_live(hold) then return end
  local owner = hold.flag == 'k' and ' ' .. id or hold.owner
  if not owners[owner] then owner_count = owner_count + 1 end
  if hold.flag == 'k' then cooldown_count = cooldown_count + 1 end
  owners[owner] = hold
  if hold.limit > 0 then least_limit = math.min(least_limit, hold.limit) end
  if hold.limit == 0 then readers[owner] = true elseif hold.limit > 1 then seats[owner] = true end
end

local function count_all()
  owners, owner_count, least_limit, cooldown_count = {}, 0, math.huge, 0
  readers, seats = {}, {}
  for id, hold in pairs(holds) do count_in(hold, id) end
end

-- How long the hash must live for this hold. If the clock went back, a min-hold lasts until the
-- clock reaches its end again. A provisional hold outlives its lease, so that the next request sees
-- that it was not confirmed.
local function life_left(hold)
  local latest = ends_at(hold)
  if hold.flag == 'p' then
    latest = latest + (lapse_memory + 1) * 1000
  elseif hold.min_hold > 0 then
    latest = math.max(latest, hold.since + hold.min_hold * 1000)
  end
  return math.max(math.ceil((latest - now) / 1000), 1)
end

local function store(id, hold)
  holds[id], changed = hold, true
  call('HSET', key, id, packed(hold))
  if call('PTTL', key) < 0 then call('PEXPIRE', key, life_left(hold)) end
end

local function remove(id)
  holds[id], changed = nil, true
  call('HDEL', key, id)
end

-- The hash expires with its last hold: the release in fast_paths.lua relies on that.
local function set_life()
  local life = 0
  for _, hold in pairs(holds) do life = math.max(life, life_left(hold)) end
  if changed and life > 0 then call('PEXPIRE', key, life) end
end

-- A hold that ends before its min-hold keeps the key taken, without an owner.
local function remove_or_cool_down(id, hold)
  if not is_held(hold) or min_hold_left(hold) <= 0 then return remove(id) end
  hold.lease, hold.at, hold.flag, hold.owner = hold.min_hold, math.min(hold.since, now), 'k', '-'
  store(id, hold)
end

-- A waiter that has not confirmed has done no work, so its min-hold does not apply.
local function expire(id, hold)
  if hold.flag ~= 'p' then return remove_or_cool_down(id, hold) end
  has_lapsed = has_lapsed or ends_at(hold) + lapse_memory * 1000 > now
  remove(id)
end

-- Reads all holds and drops the expired ones; returns false if the hash is not a lock's.
local function load()
  local all = call('HGETALL', key)
  local expired = {}
  for i = 1, #all, 2 do
    local hold = parse(all[i + 1])
    if not hold then return false end
    holds[all[i]] = hold
    -- The clock went back: the lease counts from now on, or it would last longer by that step.
    if hold.from_ahead then store(all[i], hold) end
    if ends_at(hold) <= now then
      expired[#expired + 1] = all[i]
    elseif is_live(hold) then
      earliest_before = math.min(earliest_before, ends_at(hold))
    end
  end
  for _, id in ipairs(expired) do expire(id, holds[id]) end
  count_all()
  return true
end

local function unqueue(id)
  call('ZREM', KEYS[2], id)
  call('HDEL', KEYS[3], id)
end

