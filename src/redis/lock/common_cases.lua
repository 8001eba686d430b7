-- A free key with nobody waiting: the common case stands before any function is made.
if op == 'acquire' and guard_end == 0 and redis.call('EXISTS', KEYS[1], KEYS[2]) == 0 then
  local fence = wanted_stamp
  local last = tonumber(redis.call('SET', KEYS[4], fence, 'EX', fence_life, 'GET') or 0) or 0
  if last >= wanted and last < largest_fence then
    fence = string.format('%.0f', last + 1)
    redis.call('SET', KEYS[4], fence, 'EX', fence_life)
  end
  redis.call('HSET', KEYS[1], token, stamp .. ' ' .. stamp .. ' ' .. fence .. ARGV[3])
  redis.call('PEXPIRE', KEYS[1], ARGV[8])
  return {'granted', fence, ARGV[5], stamp, 0, guard_left, vouched}
end

-- Release and renewal of a hold without a floor that nobody waits for: the other common cases.
-- PEXPIRE and HDEL come first because a server out of memory runs those, and then lets the rest of
-- the script write.
local own_value = (op == 'renew' or op == 'release') and redis.call('HGET', KEYS[1], token)
local undisturbed = own_value and redis.call('EXISTS', KEYS[2]) == 0
if undisturbed and op == 'release' then
  local at, lease = string.match(own_value, '^(%d+) %d+ %d+ (%d+) %d+ %d+ [hp] 0 ')
  if at and ARGV[3] == '0' and math.min(at, now) + lease * 1000 > now then
    redis.call('HDEL', KEYS[1], token)
    return {'released', 0, guard_left, vouched}
  end
elseif undisturbed then
  local at, since, fence, lease, ttl, limit, flag, floor, rest =
    string.match(own_value, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ([hp]) (%d+)( .*)$')
  local live = at and math.min(at, now) + lease * 1000 > now
  local raises = vouched and (tonumber(ARGV[4]) or 0) > tonumber(fence or 0)
  if live and floor == '0' and not raises then
    lease = ARGV[3] == '' and ttl or ARGV[3]
    local life = math.max(lease, redis.call('PTTL', KEYS[1]))
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', life))
    redis.call('HSET', KEYS[1], token,
      table.concat({stamp, since, fence, lease, ttl, limit, 'h', floor}, ' ') .. rest)
    return {'renewed', lease, stamp, fence, 0, guard_left, vouched}
  end
end

-- A waiter's entry is made of this, with what it proposes; so are the fields of its hold.
if vouched and op == 'acquire' then
  ARGV[3] = string.gsub(ARGV[3], ' h ', ' h' .. ARGV[12] .. ' ', 1)
end
