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

-- What instants are compared with, as text: those of our time have as many digits as each other. `cutoff` is where the
-- window begins, `half` and `next_half` the half windows of the calendar before and after it. A log lives for three
-- windows since its first admission last came into another half window: whatever was admitted since lies less than one
-- and a half after that half began, and so is kept for a window at least.
local function edges_of(window, now)
  local half = math.floor(window / 2)
  local cutoff = now - window
  local begins = cutoff - cutoff % half
  return { cutoff = text(cutoff), half = text(begins), next_half = text(begins + half),
    lifetime = text(math.ceil(3 * window / 1000)) }
end

-- Forgets the admissions before the window, and says how many.
local function forget(log, edges)
  local cutoff, gone, most, oldest, first = edges.cutoff, 0, 4
  -- Of a caller with a steady pace one goes when one comes.
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
  forget(log, edges_of(window, at))
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

local function take(log, limit, window, now)
  local passes, remaining, wait, reset, at = look(log, limit, window, now)
  if not passes then return passes, remaining, wait, reset end
  call('RPUSH', log, text(at))
  call('PEXPIRE', log, edges_of(window, at).lifetime)
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
