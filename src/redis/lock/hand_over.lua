-- Part 5 of the script that request.lua describes: the commonest hand-over. KEYS 1
-- to 4. ARGV 3 of release, the word for this server. Reply: released, with the grant published on
-- the waiter's channel; other requests go on after it. Sets the spans of waiting for the parts after
-- it.
--
-- The common case of a release that others wait for, before the functions for all cases are made.

-- What a waiter holds that was granted by a message, until it confirms: on a single server its
-- command runs by then, and is to outlive a hiccup of some seconds. Where the last such grant has
-- lapsed within `lapse_memory` the next waiters may be stopped, too, and get a shorter one each.
local provisional_lease, doubted_lease, lapse_memory = KEYS[5] and 2000 or 6000, 1000, 30000
local longest_silence, queue_life, told_slack = 75000000, 120000, 1000
-- How many at the head of the queue know when what blocks ends, and how many are told together
-- where one of them does not: most hand-overs then wake nobody but who gets the lock.
local waiters_told, told_together = 3, 8
-- How long a waiter to which nobody listens keeps its place, and how many at the head of the queue.
local longest_absence, most_absent = 1000000, 32

-- Release of the only hold, without a floor, where the first in line waits at this server, for the
-- key alone, and those behind it know when to ask: what let_in() and tell_next() would do.
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
    -- A server that refuses writes does so before the waiter is told of a grant.
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
