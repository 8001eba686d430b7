-- Part 6 of the script that request.lua describes: functions that decide which owners may enter, and
-- admit them.

-- Returns a hold of the innermost live owner that is `owner` or encloses it. A path of sixteen
-- owners may have lost its beginning: it then matches an owner whose path ends with its first
-- owners.
local function outer_hold(owner)
  local _, above = string.gsub(owner, '/', '')
  while owner and not owners[owner] do
    for other, hold in pairs(above >= 15 and owners or {}) do
      if string.sub(other, -#owner - 1) == '/' .. owner then return hold end
    end
    owner = string.match(owner, '^(.*)/[^/]*$')
  end
  return owners[owner]
end

-- Returns 'enter' with the hold to re-enter, 'fresh', 'upgrade' or 'full'. A member of a quorum may
-- miss some readers or semaphore owners, so it lets these two exclude each other. A cooldown
-- excludes only newcomers, because its owner no longer works.
local function rule(owner, limit, past_quarantine)
  local outer = outer_hold(owner)
  if outer then
    if limit == 0 then return 'enter', outer end
    if owner_count - cooldown_count > limit then return 'upgrade' end
    for reader in pairs(recorded and limit > 1 and readers or {}) do
      if reader ~= outer.owner and owners[reader].flag ~= 'k' then return 'upgrade' end
    end
    return 'enter', outer
  end
  if recorded and next(limit == 0 and seats or limit > 1 and readers or {}) then return 'full' end
  if limit > 0 and owner_count + 1 > limit then return 'full' end
  if owner_count + 1 > least_limit then return 'full' end
  return (quarantine_end == 0 or past_quarantine) and 'fresh' or 'full'
end

-- `hold` has the fields of the request; verdict and outer come from rule().
local function admit(id, hold, verdict, outer, fence, at)
  if verdict == 'enter' then
    hold.owner, hold.fence = outer.owner, outer.fence
  else
    hold.fence = fence or next_fence(hold.proposal)
  end
  hold.at, hold.since = at or now, now
  if verdict ~= 'enter' then note_grant(hold) end
  unqueue(id)
  store(id, hold)
  count_in(hold, id)
end
