-- The exact sliding log: a list of the times (microseconds) at which a caller was admitted.
-- Prepended to the scripts that use it; `now` is the one clock of all replicas.
-- Numbers that do not change are passed as text: Redis formats every other number as a float, which takes as long again
-- as the command.
local call = redis.call

-- A command on one of our keys. If something else was written there, the key is deleted and starts over: one bad key must
-- not stop the calls of everybody.
local function own(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  if not string.find(reply.err, 'WRONGTYPE', 1, true) then error(reply.err) end
  redis.log(redis.LOG_WARNING, key .. ' was overwritten and starts over')
  call('DEL', key)
  return call(command, key, ...)
end

local function clock()
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end

local function text(instant) return string.format('%.0f', instant) end

-- The times that log entries are compared with, as text: current times all have the same number of digits. `cutoff` is
-- the start of the window, `half` and `next_half` the calendar half windows before and after it. A log expires three
-- windows after its first admission last entered another half window. Anything admitted since lies less than one and a
-- half windows after the start of that half window, and so is kept for at least a window.
local function edges_of(window, now)
  local half = math.floor(window / 2)
  local cutoff = now - window
  local begins = cutoff - cutoff % half
  return { cutoff = text(cutoff), half = text(begins), next_half = text(begins + half),
    lifetime = text(math.ceil(3 * window / 1000)) }
end

-- Removes the admissions before the window, and returns how many.
local function forget(log, edges)
  local cutoff, gone, most, oldest, first = edges.cutoff, 0, 4
  -- For a caller with a steady pace, one admission expires with each new one.
  local some = call('LRANGE', log, '0', '3')
  while true do
    local expired = 0
    while expired < most and some[expired + 1] and some[expired + 1] <= cutoff do expired = expired + 1 end
    if expired > 0 and not oldest then oldest = some[1] end
    gone, first = gone + expired, some[expired + 1]
    if expired < most then break end
    most = 2 * most
    some = call('LRANGE', log, gone, gone + most - 1)
  end
  if gone == 1 then call('LPOP', log) elseif gone > 1 then call('LTRIM', log, tostring(gone), '-1') end
  if gone > 0 and first and (oldest < edges.half or first >= edges.next_half) then
    call('PEXPIRE', log, edges.lifetime)
  end
  return gone
end

-- Number of admissions within the window, and the time to calculate with.
local function held(log, window, now)
  local last = tonumber(own('LINDEX', log, '-1'))
  if not last then return 0, now end
  -- If the clock went back a little, time stands still until it has caught up. If it went back by more than a window,
  -- start over.
  if last - now > window or now - last >= window then
    call('DEL', log)
    return 0, now
  end
  local at = math.max(now, last)
  forget(log, edges_of(window, at))
  return call('LLEN', log), at
end

-- Whether a request would be admitted, remaining, microseconds until one is free, time at which all are free; and the
-- time to calculate with.
local function look(log, limit, window, now)
  local count, at = held(log, window, now)
  local reset = at
  if count > 0 then reset = tonumber(call('LINDEX', log, '-1')) + window end
  if count < limit then return true, limit - count, 0, reset, at end
  -- After a plan was lowered the log may hold more than `limit`: the entry whose expiry frees a request is further on.
  local frees = tonumber(call('LINDEX', log, count - limit))
  return false, 0, frees + window - at, reset, at
end

local function take(log, limit, window, now)
  local passes, remaining, wait, reset, at = look(log, limit, window, now)
  if not passes then return passes, remaining, wait, reset end
  call('RPUSH', log, text(at))
  call('PEXPIRE', log, edges_of(window, at).lifetime)
  return true, remaining - 1, 0, at + window
end
