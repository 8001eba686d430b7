-- Part 8 of the script that request.lua describes: acquire(), renew(), release() and force(),
-- called once the holds are read. Each takes the ARGV of its operation there and returns its reply,
-- without the items that a member adds. KEYS 1 to 4.

local function live_values(reply, wanted, most)
  for _, hold in pairs(holds) do
    if is_live(hold) and #reply < most and wanted(hold) then reply[#reply + 1] = packed(hold) end
  end
  return reply
end

local function granted(more)
  local hold = holds[token]
  return 'granted ' .. hold.fence .. ' ' .. more
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

local function join(ticket)
  local place = call('ZSCORE', KEYS[2], token)
  if not place or (ticket and ticket < tonumber(place)) then
    call('ZADD', KEYS[2], string.format('%.0f', ticket or last_ticket_plus_one()), token)
  end
  call('HSET', KEYS[3], token, stamp .. ' 0 ' .. ARGV[8] .. ' ' .. claim)
  keep_queue()
end

local function superseded(by, more)
  return {'refused', 'superseded', string.format('%.0f', by.ticket), 0, call('ZCARD', KEYS[2]), 0, 0,
    stamp, more, string.format('h 0 %s %s 0 0 0 1 %s %s', stamp, stamp, by.owner, by.who)}
end

local function requested() return select(2, parse_waiter('0 0 - ' .. claim)) end

local function acquire()
  local own, asked, channel = holds[token], requested(), ARGV[8] or ''
  if own and (own.flag == 'k' or own.flag == 't') then
    unqueue(token)
    return refused('gone', 0, 0, settle())
  end
  if own then
    own.at, own.ttl, own.lease, own.flag = now, asked.ttl, asked.ttl, 'h'
    unqueue(token)
    store(token, own)
    return granted(settle())
  end
  local latest, ticket = ARGV[10] == 'latest', tonumber(ARGV[7] or '')
  local older = latest and newest()
  if is_superseded(older, ticket, asked.owner) then
    unqueue(token)
    return superseded(older, settle())
  end
  local verdict, outer = rule(asked.owner, asked.limit)
  if verdict == 'enter' then
    admit(token, asked, verdict, outer)
    return granted(settle())
  end
  if verdict == 'upgrade' then
    unqueue(token)
    return refused('upgrade', 0, 0, settle())
  end
  local queued = call('EXISTS', KEYS[2]) == 1
  if latest and not ticket then
    ticket = math.max(last_ticket_plus_one(), older and older.ticket + 1 or 0)
  end
  if channel ~= '' and (queued or verdict == 'full') then
    join(ticket)
    if latest then supersede(older, tonumber(call('ZSCORE', KEYS[2], token)), asked) end
    queued = true
  end
  local more = queued and let_in(token, verdict == 'fresh') or 0
  if not holds[token] and call('EXISTS', KEYS[2]) == 0 then
    verdict, outer = rule(asked.owner, asked.limit)
    if verdict == 'fresh' then
      admit(token, asked, verdict, outer)
      if latest and (not vouched or ARGV[7] ~= '') then supersede(older, ticket, asked) end
    end
  end
  more = math.max(more, tell_next(token))
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
    floor = 0, owner = '-', who = who}
end

local function not_held(word, own)
  local more = settle()
  if own and own.flag == 't' and own.who ~= '-' then return {word, more, own.who} end
  return word .. ' ' .. more
end

local function renew()
  local own = holds[token]
  if not own or (own.flag ~= 'h' and own.flag ~= 'p') then return not_held('gone', own) end
  own.at, own.flag = now, 'h'
  own.lease = tonumber(ARGV[4]) or own.ttl
  if op == 'renew' and ARGV[6] and not string.find(own.who, ' #%d+$') then
    own.who = own.who .. ARGV[6]
  end
  store(token, own)
  local more = settle()
  return string.format('renewed %.0f %s %.0f %d', own.lease, own.fence, own.limit, more)
end

local function release()
  local own = holds[token]
  local answer = 'absent'
  if own and (own.flag == 'h' or own.flag == 'p') then
    answer = 'released'
    if ARGV[5] == '1' then remove(token) else drop_or_keep(token, own) end
    count_all()
  elseif call('ZREM', KEYS[2], token) == 1 then
    answer = 'left'
  end
  call('HDEL', KEYS[3], token)
  if ARGV[4] == '1' and not holds[token] then
    store(token, tombstone(tonumber(ARGV[6]), '-'))
  end
  if answer == 'absent' then return not_held(answer, own) end
  return answer .. ' ' .. settle()
end

local function force()
  local fences = {}
  for fence in string.gmatch(ARGV[4], '%d+') do fences[fence] = true end
  local function wanted(hold) return ARGV[4] == '' or fences[hold.fence] end
  local out = live_values({'forced', stamp, 0}, wanted, math.huge)
  for id, hold in pairs(holds) do
    if is_live(hold) and wanted(hold) then
      local told = hold.flag ~= 'k' and ARGV[5]
      if told then store(id, tombstone(hold.lease, told)) else remove(id) end
    end
  end
  count_all()
  out[3] = settle()
  return out
end
