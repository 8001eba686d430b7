-- Part 3 of the script that request.lua describes: the commonest requests, answered at once. KEYS 1
-- holds, 2 queue, 4 fence. ARGV of acquire, renew and release as listed there. Reply: released,
-- granted or renewed; the parts after it answer other requests. Sets only_hold, time, stamp, now
-- and claim (how a waiter's entry ends) for them.
--
-- The common cases come before any function is created, because creating one takes longer than a
-- command. The first write must not be denyoom: a server that is out of memory runs it, and then
-- all other writes of the script.

-- Releases the only hold if it has no min-hold and nobody waits. The hash expires with the lease,
-- so the clock is not needed.
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
-- Joining two texts takes less work than formatting a 64-bit number.
stamp = #time[2] == 6 and time[1] .. time[2] or string.format('%s%06d', time[1], time[2])

-- Grants a free key that nobody waits for.
if op == 'acquire' and guard_end == 0 and not ARGV[10] and
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

-- Renews a hold that has no min-hold, that nobody waits for, and that outlives all others.
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

-- The end of a waiter's entry, from which its hold is made.
local claim
if op == 'acquire' or op == 'rejoin' then
  claim = (op == 'acquire' and ARGV[9] or '-') .. ' ' .. ARGV[5] .. ARGV[4]
end
