-- Part 8, the last, of the script that request.lua describes: reads the holds, calls the operation
-- that ARGV 1 names, and replies, with the items that a member adds. KEYS 1 to 5 and the ARGV of
-- all operations as listed there.

local function live_values(reply, wanted, most)
  for _, hold in pairs(holds) do
    if is_live(hold) and #reply < most and wanted(hold) then reply[#reply + 1] = packed(hold) end
  end
  return reply
end

-- How long the lease of an evicted predecessor lasts, and who evicted it; nothing if there is none.
local function predecessor()
  local left, evictor = 0, nil
  for _, hold in pairs(holds) do
    local rest = math.ceil((ends_at(hold) - now) / 1000)
    local may_run = not is_live(hold) and hold.who ~= '-' and hold.ttl > 0
    if may_run and rest > left then left, evictor = rest, hold.who end
  end
  if evictor then return left, evictor end
end

local function granted(more)
  local left, evictor = predecessor()
  if evictor then return {'granted', holds[token].fence, more, left, evictor} end
  return 'granted ' .. holds[token].fence .. ' ' .. more
end

local function refused(why, ticket, ahead, more)
  local earliest = earliest_end()
  local ask_again = earliest == math.huge and 1000 or math.ceil((earliest - now) / 1000)
  return live_values({'refused', why, string.format('%.0f', ticket), ahead,
    call('ZCARD', KEYS[2]), ask_again, owner_count, stamp, more}, is_live, 17)
end

local function last_ticket_plus_one()
  return math.max((call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2] or 0) + 1, now)
end

local function join(ticket, channel)
  local place = call('ZSCORE', KEYS[2], token)
  if not place or (ticket and ticket < tonumber(place)) then
    call('ZADD', KEYS[2], string.format('%.0f', ticket or last_ticket_plus_one()), token)
  end
  call('HSET', KEYS[3], token, stamp .. ' 0 ' .. channel .. ' ' .. claim)
  set_queue_life()
end

local function superseded(by, more)
  return {'refused', 'superseded', string.format('%.0f', by.ticket), 0, call('ZCARD', KEYS[2]), 0,
    0, stamp, more, string.format('h 0 %s %s 0 0 0 1 %s %s', stamp, stamp, by.owner, by.who)}
end

local function requested() return select(2, parse_waiter('0 0 - ' .. claim)) end

local function acquire()
  local own, asked, channel = holds[token], requested(), ARGV[8] or ''
  if own and not is_held(own) then
    unqueue(token)
    return refused('gone', 0, 0, tidy())
  end
  if own then
    own.at, own.ttl, own.lease, own.flag = now, asked.ttl, asked.ttl, 'h'
    unqueue(token)
    store(token, own)
    return granted(tidy())
  end
  local latest, ticket = ARGV[10] == 'latest', tonumber(ARGV[7] or '')
  local older = latest and newest()
  if is_superseded(older, ticket, asked.owner) then
    unqueue(token)
    return superseded(older, tidy())
  end
  local verdict, outer = rule(asked.owner, asked.limit)
  if verdict == 'enter' then
    admit(token, asked, verdict, outer)
    return granted(tidy())
  end
  if verdict == 'upgrade' then
    unqueue(token)
    return refused('upgrade', 0, 0, tidy())
  end
  local queued = call('EXISTS', KEYS[2]) == 1
  if latest and not ticket then
    ticket = math.max(last_ticket_plus_one(), older and older.ticket + 1 or 0)
  end
  if channel ~= '' and (queued or verdict == 'full') then
    join(ticket, ARGV[3] == '' and channel or channel .. '@' .. ARGV[3])
    if latest then supersede(older, tonumber(call('ZSCORE', KEYS[2], token)), asked) end
    queued = true
  end
  local more = queued and admit_waiters(token, verdict == 'fresh') or 0
  if not holds[token] and call('EXISTS', KEYS[2]) == 0 then
    verdict, outer = rule(asked.owner, asked.limit)
    if verdict == 'fresh' then
      admit(token, asked, verdict, outer)
      if latest and (not recorded or ARGV[7] ~= '') then supersede(older, ticket, asked) end
    end
  end
  more = math.max(more, notify_next(token))
  if holds[token] then return granted(more) end
  local place = call('ZSCORE', KEYS[2], token)
  if place then
    return refused('held', tonumber(place), call('ZRANK', KEYS[2], token), more)
  end
  -- This very request may have granted the key to the same owner in another mode.
  if rule(asked.owner, asked.limit) == 'upgrade' then return refused('upgrade', 0, 0, more) end
  return refused('held', last_ticket_plus_one(), call('ZCARD', KEYS[2]), more)
end

local function tombstone(lease, who)
  return {at = now, since = now, fence = '0', lease = lease, ttl = lease, limit = 0, flag = 't',
    min_hold = 0, owner = '-', who = who}
end

local function not_held(word, own)
  local more = tidy()
  if own and own.flag == 't' and own.who ~= '-' then return {word, more, own.who} end
  return word .. ' ' .. more
end

local function renew()
  local own = holds[token]
  if not own or not is_held(own) then return not_held('gone', own) end
  local handed_over = own.flag == 'p'
  own.at, own.flag = now, 'h'
  own.lease = tonumber(ARGV[4]) or own.ttl
  -- A member raises the hold's fence, unless a larger one was granted since.
  local raised = recorded and op == 'renew' and tonumber(ARGV[5]) or 0
  if raised > tonumber(own.fence) and raised >= last_fence() then agree(own.owner, ARGV[5]) end
  local at = string.find(own.who, ' !', 1, true)
  local who, stop = own.who, ''
  if at then who, stop = string.sub(who, 1, at - 1), string.sub(who, at) end
  if op == 'renew' and ARGV[6] and not string.find(who, ' #%d+$') then
    own.who = who .. ARGV[6] .. stop
  end
  store(token, own)
  local more = tidy()
  local reply = {'renewed', string.format('%.0f', own.lease), own.fence,
    string.format('%.0f', own.limit), more}
  local left, evictor
  if handed_over then left, evictor = predecessor() end
  if not at and not evictor then return table.concat(reply, ' ') end
  reply[6], reply[7], reply[8] = string.sub(stop, 3), left, evictor
  return reply
end

local function release()
  local own = holds[token]
  local answer = 'absent'
  if own and is_held(own) then
    answer = 'released'
    note_end(own, ARGV[4] or '-')
    if ARGV[6] == '1' then remove(token) else remove_or_cool_down(token, own) end
    count_all()
  elseif call('ZREM', KEYS[2], token) == 1 then
    answer = 'left'
  end
  call('HDEL', KEYS[3], token)
  -- An evicted holder that releases has ended: it may not run beside the next one.
  if own and own.flag == 't' and own.ttl > 0 then
    own.ttl = 0
    store(token, own)
  end
  if ARGV[5] == '1' and not holds[token] then
    store(token, tombstone(tonumber(ARGV[7]), '-'))
  end
  if answer == 'absent' then return not_held(answer, own) end
  return answer .. ' ' .. tidy()
end

local function ask_to_stop(id, hold)
  if not is_held(hold) or string.find(hold.who, ' !', 1, true) then return end
  hold.who = hold.who .. ' !' .. ARGV[5]
  store(id, hold)
end

local function evict_one(id, hold)
  if not is_held(hold) then return remove(id) end
  note_end(hold, '!' .. ARGV[5])
  store(id, tombstone(hold.lease, ARGV[5]))
end

local function evict()
  local apply = op == 'stop' and ask_to_stop or evict_one
  local fences = {}
  for fence in string.gmatch(ARGV[4], '%d+') do fences[fence] = true end
  local function wanted(hold) return ARGV[4] == '' or fences[hold.fence] end
  local out = live_values({'forced', stamp, 0}, wanted, math.huge)
  for id, hold in pairs(holds) do
    if is_live(hold) and wanted(hold) then apply(id, hold) end
  end
  count_all()
  out[3] = tidy()
  return out
end

-- Defined only for a member of a quorum. Returns the reply of a renew.
local rejoin

if recorded then
  -- A re-entered hold may come back before the outer one, and is then stored under the inner owner.
  -- This moves it to the outer owner. The fence identifies it: all holds of one owner share a
  -- fence, and no other owner has it. An owner that is back already adopts nothing.
  local function adopt_inner(owner, fence)
    if owners[owner] then return end
    for id, hold in pairs(holds) do
      local below = string.sub(hold.owner, 1, #owner + 1) == owner .. '/'
      if is_held(hold) and below and hold.fence == fence then
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
    if own and is_held(own) then
      agree(own.owner, fence)
    elseif own then
      return renew()
    elseif verdict == 'enter' or verdict == 'fresh' then
      admit_again(token, asked, outer, fence)
    elseif verdict == 'full' then
      -- The hold waits first in the queue until there is room; no message announces its return.
      join(0, reserved)
    end
    return renew()
  end
end

-- HDEL is not denyoom: after it a server that is out of memory lets a holder renew and release.
if op ~= 'acquire' then call('HDEL', key, '') end
if not load() then
  return redis.error_reply('DLOCKDATA ' .. key .. ' is a hash, but not one of a lock')
end

local answer
if op == 'acquire' then answer = acquire()
elseif op == 'renew' then answer = renew()
elseif op == 'release' then answer = release()
elseif op == 'force' or op == 'stop' then answer = evict()
elseif op == 'rejoin' then answer = rejoin()
else answer = 'tidied ' .. tidy() end
set_life()
if type(answer) == 'string' then return answer .. of_member end
if recorded then
  answer[#answer + 1] = quarantine_left
  answer[#answer + 1] = recorded
end
return answer
