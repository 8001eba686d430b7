-- Part 5 of the script that request.lua describes: the commonest hand-over. KEYS 1 to 4. ARGV 3 of
-- release: the id of this server. Reply: released, with the grant published on the waiter's
-- channel; the parts after it answer other requests. Sets the time limits of waiting for them.
--
-- This case comes before the functions for all cases are created, which takes time.

-- The lease of a waiter that was granted by a message, until it confirms. On a single server its
-- command is running by then, so the lease outlives a hiccup of some seconds. If such a grant
-- expired unconfirmed within `lapse_memory`, the next waiters may be frozen, too, and get a shorter
-- lease.
local provisional_lease, doubted_lease, lapse_memory = KEYS[5] and 2000 or 6000, 1000, 30000
local longest_silence, queue_life, told_slack = 75000000, 120000, 1000
-- How many waiters at the head of the queue know when the blocking hold ends, and how many are
-- notified together if one of them does not. Most hand-overs then wake only the new holder.
local waiters_told, told_together = 3, 8
-- How long a waiter without a listener keeps its position, and how many such waiters at the head of
-- the queue do.
local longest_absence, most_absent = 1000000, 32

-- Releases the only hold, which has no min-hold, if the first waiter waits at this server for an
-- exclusive lock and the waiters after it know when to ask. It does what let_in() and tell_next()
-- would do.
if only_hold and guard_end == 0 then
  local line = call('ZRANGE', KEYS[2], 0, waiters_told)
  local head = call('HGET', KEYS[3], line[1]) or ''
  local seen, channel, joined_at, proposal, floor, ttl, rest, owner =
    string.match(head, '^(%d+) %d+ ([^ @=!]+)@?(%S*) (%S+) (%d+) %d+ (%d+)( 1 (%S+) .*)$')
  local ready = seen and tonumber(seen) >= now - longest_silence and joined_at == ARGV[3]
  local lease = math.min(provisional_lease, tonumber(ttl or 0))
  local latest = now + (lease + told_slack) * 1000
  for i = 2, #line do
    local waiter = call('HGET', KEYS[3], line[i]) or ''
    local last, told, other =
      string.match(waiter, '^(%d+) (%d+) [^ !]%S* %S+ %d+ %d+ %d+ %d+ (%S+)')
    told = tonumber(told or 0)
    ready = ready and told > now and told <= latest and string.sub(other, 1, #owner) ~= owner
      and tonumber(last) >= now - longest_silence
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
        {'p', floor, stamp, stamp, fence, lease, ttl}, ' ') .. rest)
      call('PEXPIRE', key, lease + lapse_memory + 1)
      return 'released 0' .. of_member
    end
  end
end
