-- Part 10, the last, of the script that request.lua describes: reads the holds, calls the operation
-- that ARGV 1 names, and replies, with the items that a member adds. KEYS 1 to 5.

-- HDEL is not denyoom: after it a server that is out of memory lets a holder renew and release.
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
