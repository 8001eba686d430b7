local KEYS, ARGV = KEYS, ARGV
local call, op, token, key = redis.call, ARGV[1], ARGV[2], KEYS[1]
local fence_life, largest_fence = '604800', 9007199254740991  -- a larger one is none of ours
local time, now, stamp
local guard_life, furthest_proposal = 120000000, 60000000
local guard_end, guard_left, vouched = 0, nil, nil  -- 0: not guarded; nil: no member
local proposed, of_member = nil, ''
if KEYS[5] then
time = call('TIME')
now = time[1] * 1000000 + time[2]
local stored = call('GET', KEYS[5]) or ''
local run_id, since, flag = string.match(stored, '^(%S+) (%d+) ([a-])$')
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
for _, command in ipairs({'flushall', 'flushdb', 'swapdb', 'replicaof', 'slaveof', 'failover',
'debug', 'config|resetstat', 'config'}) do
local calls = string.match(info, '\ncmdstat_' .. command .. ':calls=(%d+)')
whole = whole and (calls or '0') == '0'
end
since = whole and now - math.max(0, uptime - 1) * 1000000 or now
end
run_id, flag = token, ARGV[4]
end
vouched, guard_end = '-', now + guard_life
if run_id then
vouched, guard_end = run_id .. '/' .. flag, since + guard_life
local value = string.format('%s %.0f %s', run_id, since, flag)
local write = op == 'record_process' and call or redis.pcall
if value ~= stored then write('SET', KEYS[5], value) end
end
guard_left = math.max(0, math.ceil((guard_end - now) / 1000))
if guard_left == 0 then guard_end = 0 end
if op == 'record_process' then return {guard_left, vouched} end
of_member = ' ' .. guard_left .. ' ' .. vouched
proposed = op == 'acquire' and tonumber(ARGV[9])
if proposed then
proposed = math.max(now - furthest_proposal, math.min(now + furthest_proposal, proposed))
end
end
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
stamp = #time[2] == 6 and time[1] .. time[2] or string.format('%s%06d', time[1], time[2])
if op == 'acquire' and guard_end == 0 and not ARGV[10] and
call('EXISTS', key, KEYS[2]) == 0 then
local fence = proposed and string.format('%.0f', proposed) or stamp
local granted = ' ' .. stamp .. ARGV[4]
local last = call('SET', KEYS[4], fence .. granted, 'EX', fence_life, 'GET')
last = last and string.match(last, '^%d+')
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
local claim
if op == 'acquire' or op == 'rejoin' then
claim = (op == 'acquire' and ARGV[9] or '-') .. ' ' .. ARGV[5] .. ARGV[4]
end
local provisional_lease, doubted_lease, lapse_memory = KEYS[5] and 2000 or 6000, 1000, 30000
local head_patience, queue_life, told_slack = 75000000, 120000, 1000
local waiters_told, told_together = 3, 8
local absence_patience, most_absent = 1000000, 32
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
if only_hold and guard_end == 0 then
local line = call('ZRANGE', KEYS[2], 0, waiters_told)
local head = call('HGET', KEYS[3], line[1]) or ''
local seen, channel, joined_at, proposal, floor, ttl, rest, owner =
string.match(head, '^(%d+) %d+ ([^ @=!]+)@?(%S*) (%S+) (%d+) %d+ (%d+)( 1 (%S+) .*)$')
local ready = seen and tonumber(seen) >= now - head_patience and joined_at == ARGV[3]
local lease = math.min(provisional_lease, tonumber(ttl or 0))
local latest = now + (lease + told_slack) * 1000
for i = 2, #line do
local waiter = call('HGET', KEYS[3], line[i]) or ''
local told, other = string.match(waiter, '^%d+ (%d+) [^ !]%S* %S+ %d+ %d+ %d+ %d+ (%S+)')
told = tonumber(told or 0)
ready = ready and told > now and told <= latest and string.sub(other, 1, #owner) ~= owner
end
if ready then
local fence = next_fence(tonumber(proposal))
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
local changed, budget, holds, earliest_before = false, 500, {}, guard_end > 0 and 0 or math.huge
local has_lapsed = false  -- a grant that its waiter did not confirm
local owners, owner_count, least_limit = {}, 0, math.huge  -- owner -> one of its holds
local readers, seats = {}, {}  -- owners with a hold without a limit, and with one of more than 1
local function is_live(hold) return hold.flag ~= 't' end
local function ends_at(hold) return hold.at + hold.lease * 1000 end
local function floor_left(hold)
return math.ceil((math.min(hold.since, now) + hold.floor * 1000 - now) / 1000)
end
local function parse(value)
local flag, floor, at, since, fence, lease, ttl, limit, owner, who =
string.match(value, '^([hpkt]) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (.*)$')
if not flag then return nil end
return {flag = flag, floor = tonumber(floor), at = math.min(at, now),
from_ahead = tonumber(at) > now, since = tonumber(since), fence = fence,
lease = tonumber(lease), ttl = tonumber(ttl), limit = tonumber(limit), owner = owner, who = who}
end
local function packed(hold)
return string.format('%s %.0f %.0f %.0f %s %.0f %.0f %.0f %s %s', hold.flag, hold.floor, hold.at,
hold.since, hold.fence, hold.lease, hold.ttl, hold.limit, hold.owner, hold.who)
end
local function note_grant(hold)
call('SET', KEYS[4], string.format('%s %.0f %.0f %.0f %.0f %s %s', hold.fence, hold.since,
hold.lease, hold.ttl, hold.limit, hold.owner, hold.who), 'EX', fence_life)
end
local function count_in(hold, id)
if not is_live(hold) then return end
local owner = hold.flag == 'k' and ' ' .. id or hold.owner
if not owners[owner] then owner_count = owner_count + 1 end
owners[owner] = hold
if hold.limit > 0 then least_limit = math.min(least_limit, hold.limit) end
if hold.limit == 0 then readers[owner] = true elseif hold.limit > 1 then seats[owner] = true end
end
local function count_all()
owners, owner_count, least_limit = {}, 0, math.huge
readers, seats = {}, {}
for id, hold in pairs(holds) do count_in(hold, id) end
end
local function life_left(hold)
local latest = ends_at(hold)
if hold.flag == 'p' then
latest = latest + (lapse_memory + 1) * 1000
elseif hold.floor > 0 then
latest = math.max(latest, hold.since + hold.floor * 1000)
end
return math.max(math.ceil((latest - now) / 1000), 1)
end
local function store(id, hold)
holds[id], changed = hold, true
call('HSET', key, id, packed(hold))
if call('PTTL', key) < 0 then call('PEXPIRE', key, life_left(hold)) end
end
local function remove(id)
holds[id], changed = nil, true
call('HDEL', key, id)
end
local function keep_holds()
local life = 0
for _, hold in pairs(holds) do life = math.max(life, life_left(hold)) end
if changed and life > 0 then call('PEXPIRE', key, life) end
end
local function drop_or_keep(id, hold)
if (hold.flag ~= 'h' and hold.flag ~= 'p') or floor_left(hold) <= 0 then return remove(id) end
hold.lease, hold.at, hold.flag, hold.owner = hold.floor, math.min(hold.since, now), 'k', '-'
store(id, hold)
end
local function expire(id, hold)
if hold.flag ~= 'p' then return drop_or_keep(id, hold) end
has_lapsed = has_lapsed or ends_at(hold) + lapse_memory * 1000 > now
remove(id)
end
local function load()
local all = call('HGETALL', key)
local expired = {}
for i = 1, #all, 2 do
local hold = parse(all[i + 1])
if not hold then return false end
holds[all[i]] = hold
if hold.from_ahead then store(all[i], hold) end
if ends_at(hold) <= now then
expired[#expired + 1] = all[i]
elseif is_live(hold) then
earliest_before = math.min(earliest_before, ends_at(hold))
end
end
for _, id in ipairs(expired) do expire(id, holds[id]) end
count_all()
return true
end
local function unqueue(id)
call('ZREM', KEYS[2], id)
call('HDEL', KEYS[3], id)
end
local function outer_hold(owner)
while owner and not owners[owner] do owner = string.match(owner, '^(.*)/[^/]*$') end
return owners[owner]
end
local function rule(owner, limit, past_guard)
local outer = outer_hold(owner)
if outer then
if limit == 0 then return 'enter', outer end
local reader = next(readers)
if reader == outer.owner then reader = next(readers, reader) end
if owner_count > limit or (vouched and limit > 1 and reader) then return 'upgrade' end
return 'enter', outer
end
if vouched and next(limit == 0 and seats or limit > 1 and readers or {}) then return 'full' end
if limit > 0 and owner_count + 1 > limit then return 'full' end
if owner_count + 1 > least_limit then return 'full' end
return (guard_end == 0 or past_guard) and 'fresh' or 'full'
end
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
local moment_end = math.huge
local function absent_until(channel) return tonumber(string.match(channel or '', '^!(%d+)$')) end
local function stays_away(ends) return ends <= now or ends > now + absence_patience end
local function expect(id, value)
local ends = now + absence_patience
call('HSET', KEYS[3], id,
(string.gsub(value, '^(%d+ %d+) %S+', string.format('%%1 !%.0f', ends), 1)))
return ends
end
local function parse_waiter(value)
local seen, channel, proposal, floor, lease, ttl, limit, owner, who =
string.match(value or '', '^(%d+) %d+ (%S+) (%S+) (%d+) (%d+) (%d+) (%d+) (%S+) (.*)$')
if not seen then return nil end
return {seen = tonumber(seen), channel = channel, absent = absent_until(channel)},
{lease = tonumber(lease), ttl = tonumber(ttl),
limit = tonumber(limit), flag = 'h', floor = tonumber(floor), owner = owner, who = who,
proposal = tonumber(proposal)}
end
local function keep_queue()
local life = math.max(queue_life, call('PTTL', KEYS[2]))
call('PEXPIRE', KEYS[2], life)
call('PEXPIRE', KEYS[3], life)
end
local reserved = '='
local agree, admit_again
if vouched then
agree = function(owner, fence)
local largest = last_fence() < tonumber(fence)
for id, hold in pairs(holds) do
local inside = hold.flag == 'h' or hold.flag == 'p'
if inside and hold.owner == owner then
if hold.fence ~= fence then
hold.fence = fence
store(id, hold)
end
if largest then note_grant(hold) end
end
end
end
admit_again = function(id, hold, outer, fence, at)
admit(id, hold, 'enter', outer or {owner = hold.owner, fence = fence}, nil, at)
agree(hold.owner, fence)
end
end
local function tell(channel, message)
local name, joined_at = string.match(channel, '^([^@]*)@?(.*)$')
local heard = redis.pcall('PUBLISH', key .. ':' .. name, message)
if type(heard) ~= 'number' then return -1 end
return heard == 0 and joined_at ~= ARGV[3] and 1 or heard
end
local function newest()
local ticket, id, owner, who =
string.match(call('HGET', KEYS[3], '=latest') or '', '^(%d+) (%S+) (%S+) (.*)$')
return ticket and {ticket = tonumber(ticket), id = id, owner = owner, who = who}
end
local function is_superseded(older, ticket)
if not older or not ticket or older.id == token then return false end
return ticket < older.ticket or (ticket == older.ticket and token < older.id)
end
local function supersede(older, ticket, asked)
local waits = older and older.id ~= token and call('ZSCORE', KEYS[2], older.id)
local waiter = waits and parse_waiter(call('HGET', KEYS[3], older.id))
if waiter and waiter.channel ~= reserved then
tell(waiter.channel, 'next 0')
unqueue(older.id)
end
call('HSET', KEYS[3], '=latest',
string.format('%.0f %s %s %s', ticket, token, asked.owner, asked.who))
keep_queue()
end
local function let_in(self)
while budget > 0 do
local head = call('ZRANGE', KEYS[2], 0, 0)[1]
if not head then return 0 end
local value = call('HGET', KEYS[3], head)
local waiter, hold = parse_waiter(value)
budget = budget - 1
local again = waiter and waiter.channel == reserved
local over = again and (waiter.seen > now or waiter.seen + hold.lease * 1000 <= now)
local gone = waiter and head ~= self and (waiter.seen < now - head_patience or
waiter.absent and stays_away(waiter.absent))
if not waiter or over or gone then
unqueue(head)
else
local verdict, outer = rule(hold.owner, hold.limit, again)
if verdict ~= 'fresh' and verdict ~= 'enter' then return 0 end
if again then
admit_again(head, hold, outer, string.format('%.0f', hold.proposal), waiter.seen)
elseif head == self then
admit(head, hold, verdict, outer)
elseif waiter.absent then
moment_end = waiter.absent
return 0
else
local fence = verdict == 'enter' and outer.fence or next_fence(hold.proposal)
local lease = has_lapsed and doubted_lease or provisional_lease
hold.lease, hold.flag = math.min(lease, hold.ttl), 'p'
local heard = tell(waiter.channel,
string.format('grant %s %.0f %s %s', stamp, hold.lease, fence, ARGV[3]))
if heard < 0 then return 0 end
if heard == 0 then
moment_end = expect(head, value)
return 0
end
admit(head, hold, verdict, outer, fence)
end
end
end
return call('EXISTS', KEYS[2])
end
local function earliest_end()
if guard_end > 0 then return guard_end end
local earliest = moment_end
for _, hold in pairs(holds) do
earliest = math.min(earliest, is_live(hold) and ends_at(hold) or earliest)
end
return earliest
end
local function tell_next(self)
local earliest = earliest_end()
local place, known, absent = 0, 0, 0
local wanted = earliest < earliest_before and waiters_told or 0
local message = string.format('next %.0f', math.ceil(math.min(earliest - now, 1e15) / 1000))
while known < wanted do
local id = call('ZRANGE', KEYS[2], place, place)[1]
if not id then return 0 end
if budget == 0 then return 1 end
budget = budget - 1
local value = call('HGET', KEYS[3], id) or ''
local told, channel = string.match(value, '^%d+ (%d+) (%S+)')
told = tonumber(told)
local away = absent_until(channel)
local soon = told and not away and (channel == reserved or
told > now and told <= earliest + told_slack * 1000)
local heard = (id == self or soon) and 1 or told and not away and tell(channel, message) or 0
if heard < 0 then return 0 end
if heard > 0 then
place, known = place + 1, known + 1
elseif told and absent < most_absent and not (away and stays_away(away)) then
if not away then expect(id, value) end
place, absent = place + 1, absent + 1
else
unqueue(id)
end
if heard > 0 and id ~= self and not soon then
value = string.gsub(value, ' %d+', string.format(' %.0f', earliest), 1)
call('HSET', KEYS[3], id, value)
wanted = told_together
end
end
return 0
end
local function settle(self)
local more = let_in(self)
return math.max(more, tell_next(self))
end
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
if is_superseded(older, ticket) then
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
local more = queued and let_in(token) or 0
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
local function wanted(hold) return ARGV[4] == '' or hold.fence == ARGV[4] end
local out = live_values({'forced', stamp, 0}, wanted, math.huge)
for id, hold in pairs(holds) do
if is_live(hold) and wanted(hold) then
local told = hold.flag == 'h' and ARGV[5]
if told then store(id, tombstone(hold.lease, told)) else remove(id) end
end
end
count_all()
out[3] = settle()
return out
end
local raise_own, rejoin
if vouched then
raise_own = function(fence)
local own, last = holds[token], last_fence()
local inside = own and (own.flag == 'h' or own.flag == 'p')
if not (inside and fence) or last > tonumber(fence) then return end
if tonumber(own.fence) < tonumber(fence) then agree(own.owner, fence) end
end
local function reserve(fence)
call('ZADD', KEYS[2], 0, token)
call('HSET', KEYS[3], token,
stamp .. ' 0 ' .. reserved .. ' ' .. fence .. ' ' .. ARGV[5] .. ARGV[4])
keep_queue()
end
rejoin = function()
local fence, asked = ARGV[7], requested()
local verdict, outer = rule(asked.owner, asked.limit, true)
local own = holds[token]
if own and (own.flag == 'h' or own.flag == 'p') then
agree(own.owner, fence)
elseif own then
return renew()
elseif verdict == 'enter' or verdict == 'fresh' then
admit_again(token, asked, outer, fence)
elseif verdict == 'full' then
reserve(fence)
end
return renew()
end
end
if op ~= 'acquire' then call('HDEL', key, '') end
if not load() then
return redis.error_reply('DLOCKDATA ' .. key .. ' is a hash, but not one of a lock')
end
if vouched and op == 'renew' then raise_own(ARGV[5]) end
local answer
if op == 'acquire' then answer = acquire()
elseif op == 'renew' then answer = renew()
elseif op == 'release' then answer = release()
elseif op == 'force' then answer = force()
elseif op == 'tidy' then answer = 'tidied ' .. settle()
elseif op == 'rejoin' and vouched then answer = rejoin()
else return redis.error_reply('ERR unknown operation') end
keep_holds()
if type(answer) == 'string' then return answer .. of_member end
if vouched then
answer[#answer + 1] = guard_left
answer[#answer + 1] = vouched
end
return answer
