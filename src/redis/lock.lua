-- The whole protocol of one lock, run inside the server: every operation reads and changes the
-- lock's keys in one step. The client's half is redis_store.cpp and protocol_text.cpp.
--
-- KEYS  1 holds    hash   token -> "at since fence lease ttl limit flag floor owner who"
--       2 queue    zset   ticket -> token
--       3 waiters  hash   token -> "seen told channel lease ttl limit flag floor owner who"
--       4 fence    string the last fence granted
-- All times are microseconds of this server's clock but lease, ttl and floor, which are
-- milliseconds; limit 0 is "no limit"; flag is h held, p provisional (handed over, not confirmed),
-- k kept (--min-hold, the work is over), t tombstone (the token must never be granted again).
--
-- ARGV  1 operation, 2 token, then
--   acquire  3 " lease ttl limit h floor owner who"  4 owner  5 ttl  6 limit  7 floor
--            8 life (the larger of ttl and floor)  9 wait 0|1  10 ticket or ""  11 channel
--   renew    3 ttl, or "" for the grant's own
--   release  3 unsure 0|1  4 ignore the floor 0|1  5 ttl (how long a tombstone stays)
--   force    3 fence, or "" for everybody          (token unused)
--   tidy     nothing more: lets the queue in       (token unused)
-- and last, for all: a word for this server where the lock may come to live on another, or "". Who
-- waits puts it behind its channel, as channel@word.
--
-- Replies: {"granted", fence, lease, now, more}; {"refused", why, ticket, ahead, waiting, ask again
-- in ms, owners, now, more, hold ... (8 at most)} with why = held | upgrade | gone; {"renewed",
-- lease, now, fence, more}; {"gone", more}; {"released" | "left" | "absent", more}; {"forced", now,
-- more, hold ...}; {"tidied", more}. more = 1: waiters remain to be looked at; call tidy.
-- The channel <holds key>:<channel> hears "grant <now> <lease> <fence> <word>", "next <ms>".

local op, token = ARGV[1], ARGV[2]
local fence_life, largest_fence = 604800, 9007199254740991  -- a larger one is none of ours

-- A free key with nobody waiting: the common case stands before any function is made.
if op == 'acquire' and redis.call('EXISTS', KEYS[1], KEYS[2]) == 0 then
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local stamp = string.format('%.0f', now)
  local fence = stamp
  local last = tonumber(redis.call('SET', KEYS[4], stamp, 'EX', fence_life, 'GET') or 0) or 0
  if last >= now and last < largest_fence then
    fence = string.format('%.0f', last + 1)
    redis.call('SET', KEYS[4], fence, 'EX', fence_life)
  end
  redis.call('HSET', KEYS[1], token, stamp .. ' ' .. stamp .. ' ' .. fence .. ARGV[3])
  redis.call('PEXPIRE', KEYS[1], ARGV[8])
  return {'granted', fence, ARGV[5], stamp, 0}
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local stamp = string.format('%.0f', now)

-- Renewal and release of a hold nobody waits for: the other common cases. PEXPIRE and HDEL come
-- first because a server out of memory runs those, and then lets the rest of the script write.
local own_value = (op == 'renew' or op == 'release') and redis.call('HGET', KEYS[1], token)
if own_value and redis.call('EXISTS', KEYS[2]) == 0 then
  local at, since, fence, lease, ttl, limit, flag, floor, rest =
    string.match(own_value, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ([hp]) (%d+)( .*)$')
  local live = at and math.min(at, now) + lease * 1000 > now
  if live and floor == '0' and op == 'renew' then
    lease = ARGV[3] == '' and ttl or ARGV[3]
    local life = math.max(lease, redis.call('PTTL', KEYS[1]))
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', life))
    redis.call('HSET', KEYS[1], token,
      table.concat({stamp, since, fence, lease, ttl, limit, 'h', floor}, ' ') .. rest)
    return {'renewed', lease, stamp, fence, 0}
  end
  if live and op == 'release' and ARGV[3] == '0' and (floor == '0' or ARGV[4] == '1') then
    redis.call('HDEL', KEYS[1], token)
    return {'released', 0}
  end
end

local provisional_lease, head_patience, queue_life, waiters_told = 2000, 75000000, 120000, 3
local budget, holds, earliest_before = 500, {}, math.huge
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
local function rule(owner, limit)
  local outer = outer_hold(owner)
  if outer then
    if limit == 0 or owner_count <= limit then return 'enter', outer end
    return 'upgrade'
  end
  if limit > 0 and owner_count + 1 > limit then return 'full' end
  if owner_count + 1 > least_limit then return 'full' end
  return 'fresh'
end

local function next_fence()
  local last = tonumber(redis.call('GET', KEYS[4]) or 0) or 0
  return string.format('%.0f', last < largest_fence and math.max(last + 1, now) or now)
end

-- `hold` has the request's fields; verdict and outer come from rule().
local function admit(id, hold, verdict, outer, fence)
  if verdict == 'enter' then
    hold.owner, hold.fence = outer.owner, outer.fence
  else
    hold.fence = fence or next_fence()
    redis.call('SET', KEYS[4], hold.fence, 'EX', fence_life)
  end
  hold.at, hold.since = now, now
  unqueue(id)
  store(id, hold)
  count_in(hold, id)
end

local function parse_waiter(value)
  local seen, told, channel, lease, ttl, limit, floor, owner, who =
    string.match(value or '', '^(%d+) (%d+) (%S+) (%d+) (%d+) (%d+) h (%d+) (%S+) (.*)$')
  if not seen then return nil end
  return {seen = tonumber(seen), told = tonumber(told), channel = channel},
    {lease = tonumber(lease), ttl = tonumber(ttl),
    limit = tonumber(limit), flag = 'h', floor = tonumber(floor), owner = owner, who = who}
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
        local fence = verdict == 'enter' and outer.fence or next_fence()
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

local function live_values(reply, wanted, most)
  for _, hold in pairs(holds) do
    if is_live(hold) and #reply < most and wanted(hold) then reply[#reply + 1] = packed(hold) end
  end
  return reply
end

local function granted(more)
  local hold = holds[token]
  return {'granted', hold.fence, string.format('%.0f', hold.lease), stamp, more}
end

local function refused(why, ticket, ahead, more)
  local earliest = earliest_end()
  local ask_again = earliest == math.huge and 1000 or math.ceil((earliest - now) / 1000)
  return live_values({'refused', why, string.format('%.0f', ticket), ahead,
    redis.call('ZCARD', KEYS[2]), ask_again, owner_count, stamp, more}, is_live, 17)
end

local function last_ticket_plus_one()
  return math.max((redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2] or 0) + 1, now)
end

local function join(ticket)
  local place = redis.call('ZSCORE', KEYS[2], token)
  if not place or (ticket and ticket < tonumber(place)) then
    redis.call('ZADD', KEYS[2], string.format('%.0f', ticket or last_ticket_plus_one()), token)
  end
  redis.call('HSET', KEYS[3], token, stamp .. ' 0 ' .. ARGV[11] .. ARGV[3])
  local life = math.max(queue_life, redis.call('PTTL', KEYS[2]))
  redis.call('PEXPIRE', KEYS[2], life)
  redis.call('PEXPIRE', KEYS[3], life)
end

local function requested() return select(2, parse_waiter('0 0 -' .. ARGV[3])) end

local function acquire()
  local owner, limit, wait = ARGV[4], tonumber(ARGV[6]), ARGV[9] == '1'
  local own = holds[token]
  if own and (own.flag == 'k' or own.flag == 't') then
    unqueue(token)
    return refused('gone', 0, 0, settle())
  end
  if own then
    own.at, own.ttl, own.lease, own.flag = now, tonumber(ARGV[5]), tonumber(ARGV[5]), 'h'
    unqueue(token)
    store(token, own)
    return granted(settle())
  end
  local verdict, outer = rule(owner, limit)
  if verdict == 'enter' then
    admit(token, requested(), verdict, outer)
    return granted(settle())
  end
  if verdict == 'upgrade' then
    unqueue(token)
    return refused('upgrade', 0, 0, settle())
  end
  local queued = redis.call('EXISTS', KEYS[2]) == 1
  if wait and (queued or verdict == 'full') then join(tonumber(ARGV[10])) end
  local more = let_in(token)
  if not holds[token] and redis.call('EXISTS', KEYS[2]) == 0 then
    verdict, outer = rule(owner, limit)
    if verdict == 'fresh' then admit(token, requested(), verdict, outer) end
  end
  more = math.max(more, tell_next(token))
  if holds[token] then return granted(more) end
  local place = redis.call('ZSCORE', KEYS[2], token)
  if place then
    return refused('held', tonumber(place), redis.call('ZRANK', KEYS[2], token), more)
  end
  return refused('held', last_ticket_plus_one(), redis.call('ZCARD', KEYS[2]), more)
end

local function renew()
  local own = holds[token]
  if not own or (own.flag ~= 'h' and own.flag ~= 'p') then return {'gone', settle()} end
  own.at, own.flag = now, 'h'
  own.lease = tonumber(ARGV[3]) or own.ttl
  store(token, own)
  return {'renewed', string.format('%.0f', own.lease), stamp, own.fence, settle()}
end

local function release()
  local own = holds[token]
  local answer = 'absent'
  if own and (own.flag == 'h' or own.flag == 'p') then
    answer = 'released'
    if ARGV[4] == '1' then remove(token) else drop_or_keep(token, own) end
    count_all()
  elseif redis.call('ZREM', KEYS[2], token) == 1 then
    answer = 'left'
  end
  redis.call('HDEL', KEYS[3], token)
  if ARGV[3] == '1' and not holds[token] then
    local ttl = tonumber(ARGV[5])
    store(token, {at = now, since = now, fence = '0', lease = ttl, ttl = ttl, limit = 0,
      flag = 't', floor = 0, owner = '-', who = '-'})
  end
  return {answer, settle()}
end

local function force()
  local function wanted(hold) return ARGV[3] == '' or hold.fence == ARGV[3] end
  local out = live_values({'forced', stamp, 0}, wanted, math.huge)
  for id, hold in pairs(holds) do
    if is_live(hold) and wanted(hold) then remove(id) end
  end
  count_all()
  out[3] = settle()
  return out
end

-- A write that is not denyoom, so that a server out of memory lets a holder renew and release.
if op ~= 'acquire' then redis.call('HDEL', KEYS[1], '') end
if not load() then
  return redis.error_reply('DLOCKDATA ' .. KEYS[1] .. ' is a hash, but not one of a lock')
end
if op == 'acquire' then return acquire() end
if op == 'renew' then return renew() end
if op == 'release' then return release() end
if op == 'force' then return force() end
if op == 'tidy' then return {'tidied', settle()} end
return redis.error_reply('ERR unknown operation')
