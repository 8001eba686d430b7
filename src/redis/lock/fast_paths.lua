-- Part 4 of the script that request.lua describes: the commonest requests, answered at once. KEYS 1
-- to 4 and the ARGV of acquire, renew and release as listed there. Reply: released, granted or
-- renewed; the parts after it answer other requests. For those parts it sets time, stamp, now,
-- claim (how a waiter's entry ends), last_fence() and next_fence().
--
-- The fast paths come before the functions of all other cases are created, because creating one
-- takes longer than a command. A renewal or release must not begin with a denyoom write: a server
-- that is out of memory runs the first write, and then all others of the script.

time = time or call('TIME')
-- Joining two texts takes less work than formatting a 64-bit number.
stamp = #time[2] == 6 and time[1] .. time[2] or string.format('%s%06d', time[1], time[2])

-- Releases the only hold if it has no min-hold and nobody waits.
local only_hold = op == 'release' and not ARGV[5] and call('HGET', key, token)
if only_hold then
  local fence = string.match(only_hold, '^h 0 %d+ %d+ (%d+)')
  if not fence or call('HLEN', key) ~= 1 then
    only_hold = nil
  elseif call('EXISTS', KEYS[2]) == 0 then
    call('HDEL', key, token)
    if call('EXPIRE', KEYS[4], fence_life) == 1 then
      call('APPEND', KEYS[4], ' ;' .. fence .. ' ' .. stamp .. ' ' .. (ARGV[4] or '-'))
    end
    return 'released 0' .. of_member
  end
end

-- Grants a free key that nobody waits for.
if op == 'acquire' and quarantine_end == 0 and not ARGV[10] and
  call('EXISTS', key, KEYS[2]) == 0 then
  local fence = proposed and string.format('%.0f', proposed) or stamp
  local granted = ' ' .. stamp .. ARGV[4]
  local last = call('SET', KEYS[4], fence .. granted, 'EX', fence_life, 'GET')
  last = last and string.match(last, '^%d+')
  -- Numbers with equally many digits compare like text.
  if last and (#last ~= #fence or last >= fence) then
    last = tonumber(last) or 0
    if last >= tonumber(fence) and last < largest_fence then
      fence = string.format('%.0f', last + 1)
      call('SET', KEYS[4], fence .. granted, 'EX', fence_life)
    end
  end
  call('HSET', key, token,
    'h ' .. ARGV[5] .. ' ' .. stamp .. ' ' .. stamp .. ' ' .. fence .. ARGV[4])
  call('PEXPIRE', key, ARGV[6])
  return 'granted ' .. fence .. ' 0' .. of_member
end

now = time[1] * 1000000 + time[2]

-- Renews a hold that has no min-hold and no request to stop, that nobody waits for, and that outlives
-- all others. The holder of an exclusive lock that was handed over may have an evicted predecessor.
local own_value = op == 'renew' and call('HGET', key, token)
if own_value and call('EXISTS', KEYS[2]) == 0 then
  local flag, at, since, fence, lease, ttl, limit, rest =
    string.match(own_value, '^([hp]) 0 (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)( [^!]*)$')
  local raises = recorded and (tonumber(ARGV[5]) or 0) > tonumber(fence or 0)
  if flag and math.min(at, now) + lease * 1000 > now and not raises then
    lease = ARGV[4] == '' and ttl or ARGV[4]
    local confirms = flag == 'p' and limit == '1'
    if (not confirms and tonumber(lease) >= call('PTTL', key)) or call('HLEN', key) == 1 then
      call('PEXPIRE', key, lease)
      if ARGV[6] and not string.find(rest, ' #%d+$') then rest = rest .. ARGV[6] end
      call('HSET', key, token,
        table.concat({'h 0', stamp, since, fence, lease, ttl, limit}, ' ') .. rest)
      return 'renewed ' .. lease .. ' ' .. fence .. ' ' .. limit .. ' 0' .. of_member
    end
  end
end

-- The end of a waiter's entry, from which the script makes its hold.
local claim
if op == 'acquire' then claim = (ARGV[9] or '-') .. ' ' .. ARGV[5] .. ARGV[4] end
if op == 'rejoin' then claim = ARGV[7] .. ' ' .. ARGV[5] .. ARGV[4] end

local function last_fence()
  return tonumber(string.match(call('GET', KEYS[4]) or '', '^%d+')) or 0
end

local function next_fence(proposal)
  local least = now
  if proposal then
    least = math.max(now - furthest_proposal, math.min(now + furthest_proposal, proposal))
  end
  local last = last_fence()
  return string.format('%.0f', last < largest_fence and math.max(last + 1, least) or least)
end

-- Releases the only hold, which has no min-hold, if the first waiter waits at this server for an
-- exclusive lock and the waiters after it know when to ask. It does what admit_waiters() and
-- notify_next() would do.
if only_hold and quarantine_end == 0 then
  local line = call('ZRANGE', KEYS[2], 0, waiters_notified)
  local head = call('HGET', KEYS[3], line[1]) or ''
  local seen, channel, joined_at, proposal, min_hold, ttl, rest, owner =
    string.match(head, '^(%d+) %d+ ([^ @=!]+)@?(%S*) (%S+) (%d+) %d+ (%d+)( 1 (%S+) .*)$')
  local ready = seen and tonumber(seen) >= now - longest_silence and joined_at == ARGV[3]
  local lease = math.min(provisional_lease, tonumber(ttl or 0))
  local latest = now + (lease + known_end_slack) * 1000
  for i = 2, #line do
    local waiter = call('HGET', KEYS[3], line[i]) or ''
    local last, known_end, other =
      string.match(waiter, '^(%d+) (%d+) [^ !]%S* %S+ %d+ %d+ %d+ %d+ (%S+)')
    known_end = tonumber(known_end or 0)
    ready = ready and known_end > now and known_end <= latest and
      string.sub(other, 1, #owner) ~= owner and tonumber(last) >= now - longest_silence
  end
  if ready then
    local fence = next_fence(tonumber(proposal))
    -- A server that refuses writes must do so before the waiter receives the grant.
    call('HDEL', key, '')
    local heard = redis.pcall('PUBLISH', key .. ':' .. channel,
      'grant ' .. stamp .. ' ' .. lease .. ' ' .. fence .. ' ' .. ARGV[3])
    if type(heard) == 'number' and heard > 0 then
      call('HDEL', key, token)
      call('ZREM', KEYS[2], line[1])
      call('HDEL', KEYS[3], line[1])
      call('SET', KEYS[4], table.concat({fence, stamp, lease, ttl}, ' ') .. rest, 'EX', fence_life)
      call('HSET', key, line[1], table.concat(
        {'p', min_hold, stamp, stamp, fence, lease, ttl}, ' ') .. rest)
      call('PEXPIRE', key, lease + lapse_memory + 1)
      return 'released 0' .. of_member
    end
  end
end
