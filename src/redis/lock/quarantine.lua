-- Part 2 of the script that request.lua describes: whether a member still knows all its leases.
-- KEYS 5 alive, which only a member of a quorum is given. ARGV 2 run_id and 4 flag of
-- record_process, 9 the fence that an acquire proposes. Reply, to record_process only: {ms of
-- quarantine, "run_id/flag"}. Sets quarantine_end, quarantine_left, recorded ("run_id/flag" or
-- "-"), proposed and of_member (how a reply of one line ends) for the parts after it.
--
-- A member of a quorum may have lost its memory, and with it leases that the others remember. Its
-- key `alive` therefore records which process (run_id of INFO) it was, and since when its memory is
-- whole. If the key is missing or names another process, a client records the present one. Until
-- the memory has been whole for twice the longest lease, the member admits no newcomers.
--
-- Flag `a` says that replies follow fsync, flag `-` that they do not. If both the old and the new
-- process have flag `a`, the restart has forgotten nothing. Otherwise the memory counts as whole
-- since the start of the process, or, if keys were or may have been removed since, from now on.

local quarantine_length, furthest_proposal = 120000000, 60000000
local quarantine_end, quarantine_left, recorded = 0, nil, nil  -- 0: over; nil: no member
local proposed, of_member = nil, ''

if KEYS[5] then
  time = call('TIME')
  now = time[1] * 1000000 + time[2]
  local stored = call('GET', KEYS[5]) or ''
  local run_id, since, flag = string.match(stored, '^(%S+) (%d+) ([a-])$')
  -- If the clock went back, the time counts from now on, as with leases.
  since = math.min(tonumber(since) or now, now)
  if op == 'record_process' then
    if run_id ~= token and not (flag == 'a' and ARGV[4] == 'a') then
      local info = ''
      for _, section in ipairs({'server', 'stats', 'commandstats'}) do
        local said = redis.pcall('INFO', section)
        info = info .. (type(said) == 'string' and said or '')
      end
      local uptime = tonumber(string.match(info, '\nuptime_in_seconds:(%d+)'))
      local whole = uptime and string.match(info, '\nrun_id:(%w+)') == token and
        string.match(info, '\nevicted_keys:(%d+)') == '0' and string.find(info, '\ncmdstat_')
      -- Before Redis 7 all subcommands of CONFIG count as one command; those of DEBUG always do.
      for _, command in ipairs({'flushall', 'flushdb', 'swapdb', 'replicaof', 'slaveof', 'failover',
        'debug', 'config|resetstat', 'config'}) do
        local calls = string.match(info, '\ncmdstat_' .. command .. ':calls=(%d+)')
        whole = whole and (calls or '0') == '0'
      end
      -- INFO tells whole seconds, and the first one may have been shorter.
      since = whole and now - math.max(0, uptime - 1) * 1000000 or now
    end
    run_id, flag = token, ARGV[4]
  end
  recorded, quarantine_end = '-', now + quarantine_length
  if run_id then
    recorded, quarantine_end = run_id .. '/' .. flag, since + quarantine_length
    local value = string.format('%s %.0f %s', run_id, since, flag)
    -- A server that is out of memory must still let a holder renew and release.
    local write = op == 'record_process' and call or redis.pcall
    if value ~= stored then write('SET', KEYS[5], value) end
  end
  quarantine_left = math.max(0, math.ceil((quarantine_end - now) / 1000))
  if quarantine_left == 0 then quarantine_end = 0 end
  if op == 'record_process' then return {quarantine_left, recorded} end
  of_member = ' ' .. quarantine_left .. ' ' .. recorded
  proposed = op == 'acquire' and tonumber(ARGV[9])
  if proposed then
    proposed = math.max(now - furthest_proposal, math.min(now + furthest_proposal, proposed))
  end
end
