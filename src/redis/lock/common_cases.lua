-- Part 3 of the script that request.lua describes: the commonest requests, answered at once. KEYS
-- 1 holds, 2 queue, 4 fence. ARGV of acquire, renew and release as listed there. Reply: released,
-- granted or renewed; other requests go on after it. Sets only_hold, time, stamp, now and claim
-- (how a waiter's entry ends) for the parts after it.
--
-- The common cases stand before any function is made, for making one takes longer than a command.
-- A write that is not denyoom comes first, because a server out of memory runs those, and then lets
-- the rest of the script write.

-- Release of the only hold, without a floor, that nobody waits for. The hash would have ended with
-- its lease, so no clock need be asked.
local only_hold = op == 'release' and not ARGV[4] and call('HGET', key, token)
if only_hold then
  if string.sub(only_hold, 1, 4) ~= 'h 0 ' or call('HLEN', key) ~= 1 then
    only_hold = nil
  elseif call('EXISTS', KEYS[2]) == 0 then
    call('HDEL', key, token)
    return 'released 0' .. of_member
  end
end

time = time or call('TIME')
-- Less work than to write a number of 64 bits.
stamp = #time[2] == 6 and time[1] .. time[2] or string.format('%s%06d', time[1], time[2])

-- A free key with nobody waiting.
if op == 'acquire' and guard_end == 0 and not ARGV[10] and
  call('EXISTS', key, KEYS[2]) == 0 then
  local fence = proposed and string.format('%.0f', proposed) or stamp
  local granted = ' ' .. stamp .. ARGV[4]
  local last = call('SET', KEYS[4], fence .. granted, 'EX', fence_life, 'GET')
  last = last and string.match(last, '^%d+')
  -- As text where both have as many digits.
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

-- Renewal of a hold without a floor that nobody waits for, and that outlives all others.
local own_value = op == 'renew' and call('HGET', key, token)
if own_value and call('EXISTS', KEYS[2]) == 0 then
  local flag, at, since, fence, lease, ttl, limit, rest =
    string.match(own_value, '^([hp]) 0 (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)( .*)$')
  local raises = vouched and (tonumber(ARGV[5]) or 0) > tonumber(fence or 0)
  if flag and math.min(at, now) + lease * 1000 > now and not raises then
    lease = ARGV[4] == '' and ttl or ARGV[4]
    if tonumber(lease) >= call('PTTL', key) or call('HLEN', key) == 1 then
      call('PEXPIRE', key, lease)
      if ARGV[6] and not string.find(rest, ' #%d+$') then rest = rest .. ARGV[6] end
      call('HSET', key, token,
        table.concat({'h 0', stamp, since, fence, lease, ttl, limit}, ' ') .. rest)
      return 'renewed ' .. lease .. ' ' .. fence .. ' ' .. limit .. ' 0' .. of_member
    end
  end
end

-- What a waiter's entry ends with, and what its hold is made of.
local claim
if op == 'acquire' or op == 'rejoin' then
  claim = (op == 'acquire' and ARGV[9] or '-') .. ' ' .. ARGV[5] .. ARGV[4]
end
