-- A member of a quorum may have lost its memory, and with it leases that the others remember. So its
-- key `alive` says which process (run_id of INFO) it was, and since when its memory is whole. The
-- clients compare: where it names another process or is not there, one of them vouches for this
-- one, and from then on, for twice the longest lease, nobody new gets in. Flag a, else -: what is
-- answered is on the disk first; where that was so and is so, a restart has forgotten nothing.

local guard_life, furthest_proposal = 120000000, 60000000
local guard_end, guard_left, vouched = 0, nil, nil  -- 0: not guarded; nil: no member
local wanted, wanted_stamp = now, stamp             -- the fence to give, if it is large enough

if KEYS[5] then
  local stored = redis.call('GET', KEYS[5]) or ''
  local run_id, since, flag = string.match(stored, '^(%S+) (%d+) ([a-])$')
  -- Where the clock went back it is counted from now on, as with leases.
  since = math.min(tonumber(since) or now, now)
  if op == 'vouch' then
    if run_id ~= token and not (flag == 'a' and ARGV[3] == 'a') then since = now end
    run_id, flag = token, ARGV[3]
  end
  vouched, guard_end = '', now + guard_life
  if run_id then
    vouched, guard_end = run_id .. ' ' .. flag, since + guard_life
    local value = string.format('%s %.0f %s', run_id, since, flag)
    -- A server out of memory lets a holder renew and release.
    local write = op == 'vouch' and redis.call or redis.pcall
    if value ~= stored then write('SET', KEYS[5], value) end
  end
  guard_left = math.max(0, math.ceil((guard_end - now) / 1000))
  if guard_left == 0 then guard_end = 0 end
  if op == 'vouch' then return {guard_left, vouched} end
  if op == 'acquire' then
    wanted = tonumber(ARGV[12]) or now
    wanted = math.max(now - furthest_proposal, math.min(now + furthest_proposal, wanted))
    wanted_stamp = string.format('%.0f', wanted)
  end
end
