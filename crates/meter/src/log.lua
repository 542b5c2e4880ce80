-- The exact sliding log: a list of the instants (microseconds) at which a caller was admitted.
-- Shared by the scripts that follow it; `now` is the one clock of all replicas.
-- Numbers that do not change are written as text: Redis formats every other one as a float, which takes as long again
-- as the command.
local call = redis.call

local function clock()
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end

local function text(instant) return string.format('%.0f', instant) end

-- Forgets the admissions up to `cutoff`, which is text: instants of our time have as many digits as each other.
local function forget(log, cutoff)
  -- Of a caller with a steady pace one goes when one comes.
  for gone = 0, 1 do
    local first = call('LINDEX', log, '0')
    if not first or first > cutoff then return gone end
    call('LPOP', log)
  end
  local gone = 0
  repeat
    local some, expired = call('LRANGE', log, gone, gone + 7), 0
    while some[expired + 1] and some[expired + 1] <= cutoff do expired = expired + 1 end
    gone = gone + expired
  until expired < 8
  if gone > 0 then call('LTRIM', log, gone, '-1') end
  return gone + 2
end

-- How many admissions lie within the window, and the instant to reckon with.
local function held(log, window, now)
  local last = tonumber(call('LINDEX', log, '-1'))
  if not last then return 0, now end
  -- The clock went back. A little: time stands still until it is caught up. By more than a window: start anew.
  if last - now > window or now - last >= window then
    call('DEL', log)
    return 0, now
  end
  local at = math.max(now, last)
  forget(log, text(at - window))
  return call('LLEN', log), at
end

-- Whether one would pass, remaining, microseconds until one is free, instant at which all are free; and the instant
-- to reckon with.
local function look(log, limit, window, now)
  local count, at = held(log, window, now)
  local reset = at
  if count > 0 then reset = tonumber(call('LINDEX', log, '-1')) + window end
  if count < limit then return true, limit - count, 0, reset, at end
  -- After a plan was lowered more than `limit` may be held: the one whose end frees a place is further on.
  local frees = tonumber(call('LINDEX', log, count - limit))
  return false, 0, frees + window - at, reset, at
end

-- A log outlives its last admission by a window. It is renewed when it begins and whenever something of it is
-- forgotten; in between the first admission lies within the window, so for two windows is long enough.
local function lifetime_of(window) return text(math.ceil(window / 500)) end

local function take(log, limit, window, now)
  local passes, remaining, wait, reset, at = look(log, limit, window, now)
  if not passes then return passes, remaining, wait, reset end
  call('RPUSH', log, text(at))
  call('PEXPIRE', log, lifetime_of(window))
  return true, remaining - 1, 0, at + window
end

-- The hash that live counts go into now. Its id holds its birth and is never used again: the ledger knows it by it.
local function live_batch(current, batch_prefix, now, process)
  local id = call('GET', current)
  if not id then
    id = text(now) .. '-' .. process
    call('SET', current, id)
  end
  return batch_prefix .. id
end
