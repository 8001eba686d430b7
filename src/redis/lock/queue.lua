-- Part 7 of the script that request.lua describes: functions, which reply nothing, but publish
-- "grant" and "next" on the channels of waiters. KEYS 1 to 4. ARGV 3, the id of this server.
--
-- They grant the key to waiters, notify waiters, and remove those that are gone.

-- A waiter without a listener may still come: it has asked for the first time and will listen with
-- its next request, or its connection broke. It keeps its position for a moment. Meanwhile a key
-- that is free for it is not granted to later waiters.
local absence_end = math.huge

local function absent_until(channel) return tonumber(string.match(channel or '', '^!(%d+)$')) end

-- Whether the waiter counts as gone: its absence has ended, or the clock went back.
local function stays_away(ends) return ends <= now or ends > now + longest_absence end

local function expect(id, value)
  local ends = now + longest_absence
  call('HSET', KEYS[3], id,
    (string.gsub(value, '^(%d+ %d+) %S+', string.format('%%1 !%.0f', ends), 1)))
  return ends
end

local function parse_waiter(value)
  local seen, channel, proposal, min_hold, lease, ttl, limit, owner, who =
    string.match(value or '', '^(%d+) %d+ (%S+) (%S+) (%d+) (%d+) (%d+) (%d+) (%S+) (.*)$')
  if not seen then return nil end
  return {seen = tonumber(seen), channel = channel, absent = absent_until(channel)},
    {lease = tonumber(lease), ttl = tonumber(ttl),
    limit = tonumber(limit), flag = 'h', min_hold = tonumber(min_hold), owner = owner, who = who,
    proposal = tonumber(proposal)}
end

local function set_queue_life()
  local life = math.max(queue_life, call('PTTL', KEYS[2]))
  call('PEXPIRE', KEYS[2], life)
  call('PEXPIRE', KEYS[3], life)
end

-- Stands for the channel in a reservation: the entry of a hold that the other members of a quorum
-- remember. No client listens for it, and its proposal is the fence of the hold.
local reserved = '='
local agree, admit_again

if recorded then
  -- Gives this fence to all holds of an owner, which share one, and makes it the key's last fence
  -- unless a larger one has been granted.
  agree = function(owner, fence)
    local largest = last_fence() < tonumber(fence)
    for id, hold in pairs(holds) do
      if is_held(hold) and hold.owner == owner then
        if hold.fence ~= fence then
          hold.fence = fence
          store(id, hold)
        end
        if largest then note_grant(hold) end
      end
    end
  end

  admit_again = function(id, hold, outer, fence, at)
    admit(id, hold, 'enter', outer or {owner = hold.owner, fence = fence}, nil, at)
    agree(hold.owner, fence)
  end
end

-- Returns how many clients received the message; -1 if this user may not publish. It never raises,
-- because the release that notifies the next waiter must go through all the same. A waiter that
-- queued up at another server is on its way here after a failover, or receives the message over the
-- Cluster's bus: it counts as 1 and keeps its position.
local function notify(channel, message)
  local name, joined_at = string.match(channel, '^([^@]*)@?(.*)$')
  local heard = redis.pcall('PUBLISH', key .. ':' .. name, message)
  if type(heard) ~= 'number' then return -1 end
  return heard == 0 and joined_at ~= ARGV[3] and 1 or heard
end

-- The newest request with `latest`, remembered as long as the queue.
local function newest()
  local ticket, id, owner, who =
    string.match(call('HGET', KEYS[3], '=latest') or '', '^(%d+) (%S+) (%S+) (.*)$')
  return ticket and {ticket = tonumber(ticket), id = id, owner = owner, who = who}
end

-- Only a request with a ticket can be superseded: it has been in the queue, or its ticket orders
-- the waiters of a quorum. If ticket and owner are the same, the same owner has come again under
-- another token.
local function is_superseded(older, ticket, owner)
  if not older or not ticket or older.id == token then return false end
  return ticket < older.ticket or
    (ticket == older.ticket and owner ~= older.owner and token < older.id)
end

-- Makes this request the newest. The previous one leaves the queue and learns the reason when it
-- asks again. A hold that the other members of a quorum remember stays.
local function supersede(older, ticket, asked)
  local waits = older and older.id ~= token and call('ZSCORE', KEYS[2], older.id)
  local waiter = waits and parse_waiter(call('HGET', KEYS[3], older.id))
  if waiter and waiter.channel ~= reserved then
    notify(waiter.channel, 'next 0')
    unqueue(older.id)
  end
  call('HSET', KEYS[3], '=latest',
    string.format('%.0f %s %s %s', ticket, token, asked.owner, asked.who))
  set_queue_life()
end

local function earliest_end()
  if quarantine_end > 0 then return quarantine_end end
  local earliest = absence_end
  for _, hold in pairs(holds) do
    earliest = math.min(earliest, is_live(hold) and ends_at(hold) or earliest)
  end
  return earliest
end

local function next_message(earliest)
  return string.format('next %.0f', math.ceil(math.min(earliest - now, 1e15) / 1000))
end

-- Returns a waiter's value with a new `known_end`.
local function with_known_end(value, earliest)
  return (string.gsub(value, ' %d+', string.format(' %.0f', earliest), 1))
end

-- Whether the head of the queue receives the message. If no client listens, its absence begins.
local function reaches(head, value, waiter, message)
  local heard = waiter.absent and 0 or notify(waiter.channel, message)
  if heard == 0 then absence_end = waiter.absent or expect(head, value) end
  return heard > 0
end

local handed_over = false

-- Grants to the head of the queue for as long as the rule allows; returns 1 if the budget ran out.
-- `self_fits`: only the queue keeps the request out, so a head that blocks it must be alive.
local function admit_waiters(self, self_fits)
  while budget > 0 do
    local head = call('ZRANGE', KEYS[2], 0, 0)[1]
    if not head then return 0 end
    local value = call('HGET', KEYS[3], head)
    local waiter, hold = parse_waiter(value)
    budget = budget - 1
    local again = waiter and waiter.channel == reserved
    -- A reservation ends with the lease that the other members knew when it was made. A later
    -- admission could bring the hold back after somebody else has held the key.
    local over = again and (waiter.seen > now or waiter.seen + hold.lease * 1000 <= now)
    local gone = waiter and head ~= self and (waiter.seen < now - longest_silence or
      waiter.absent and stays_away(waiter.absent))
    local verdict, outer
    if waiter and not over and not gone then
      verdict, outer = rule(hold.owner, hold.limit, again)
    end
    if not verdict then
      unqueue(head)
    elseif verdict == 'upgrade' and not again then
      -- Its owner now holds the key in another mode: the waiter asks at once, and gets the refusal.
      if head ~= self and not waiter.absent then notify(waiter.channel, 'next 0') end
      unqueue(head)
    elseif verdict ~= 'fresh' and verdict ~= 'enter' then
      local earliest = earliest_end()
      if self_fits and head ~= self and not again and
        reaches(head, value, waiter, next_message(earliest)) then
        call('HSET', KEYS[3], head, with_known_end(value, earliest))
      end
      return 0
    elseif again then
      admit_again(head, hold, outer, string.format('%.0f', hold.proposal), waiter.seen)
    elseif head == self then
      admit(head, hold, verdict, outer)
    else
      local fence = verdict == 'enter' and outer.fence or next_fence(hold.proposal)
      local lease = has_lapsed and doubted_lease or provisional_lease
      hold.lease, hold.flag = math.min(lease, hold.ttl), 'p'
      -- A server that refuses writes, or is full, must do so before the waiter receives the grant;
      -- every operation except acquire has written by now.
      if op == 'acquire' then call('HSET', KEYS[3], head, value) end
      if not reaches(head, value, waiter,
        string.format('grant %s %.0f %s %s', stamp, hold.lease, fence, ARGV[3])) then return 0 end
      admit(head, hold, verdict, outer, fence)
      handed_over = true
    end
  end
  return call('EXISTS', KEYS[2])
end

-- Notifies the first few waiters if the hold that blocks them ends sooner; a single one might be
-- about to die. After a hand-over the first waiters are others: one that has come to the front may
-- know a later end than the ones notified before. Waiters that will ask early enough get no
-- message.
local function notify_next(self)
  local earliest = earliest_end()
  local place, known, absent = 0, 0, 0
  local wanted = (earliest < earliest_before or handed_over) and waiters_notified or 0
  local message = next_message(earliest)
  while known < wanted do
    local id = call('ZRANGE', KEYS[2], place, place)[1]
    if not id then return 0 end
    if budget == 0 then return 1 end
    budget = budget - 1
    local value = call('HGET', KEYS[3], id) or ''
    local known_end, channel = string.match(value, '^%d+ (%d+) (%S+)')
    known_end = tonumber(known_end)
    local away = absent_until(channel)
    local soon = known_end and not away and (channel == reserved or
      known_end > now and known_end <= earliest + known_end_slack * 1000)
    local heard = (id == self or soon) and 1 or
      known_end and not away and notify(channel, message) or 0
    if heard < 0 then return 0 end
    if heard > 0 then
      place, known = place + 1, known + 1
    elseif known_end and absent < most_absent and not (away and stays_away(away)) then
      if not away then expect(id, value) end
      place, absent = place + 1, absent + 1
    else
      unqueue(id)
    end
    if heard > 0 and id ~= self and not soon then
      call('HSET', KEYS[3], id, with_known_end(value, earliest))
      wanted = notified_together
    end
  end
  return 0
end

local function tidy(self)
  local more = admit_waiters(self)
  return math.max(more, notify_next(self))
end
