-- The exact sliding log: a list of the instants (microseconds) at which a caller was admitted.
-- Shared by the scripts that follow it; `now` is the one clock of all replicas.

-- How many admissions lie within the window, and the instant to reckon with.
local function held(key, window, now)
  local last = redis.call('LINDEX', key, -1)
  if not last then return 0, now end
  last = tonumber(last)
  if last > now then
    -- The clock went back. A little: time stands still until it is caught up. By more than a window: start anew.
    if last - now > window then
      redis.call('DEL', key)
      return 0, now
    end
    now = last
  elseif now - last >= window then
    redis.call('DEL', key)
    return 0, now
  end
  local first = redis.call('LINDEX', key, 0)
  while first and tonumber(first) <= now - window do
    redis.call('LPOP', key)
    first = redis.call('LINDEX', key, 0)
  end
  return redis.call('LLEN', key), now
end

-- {0 or 1, remaining, microseconds until one is free, instant at which all are free}
local function look(key, limit, window, now)
  local count, at = held(key, window, now)
  local reset = at
  if count > 0 then reset = tonumber(redis.call('LINDEX', key, -1)) + window end
  if count < limit then return {1, limit - count, 0, reset}, at end
  -- After a plan was lowered more than `limit` may be held: the one whose end frees a place is further on.
  local frees = tonumber(redis.call('LINDEX', key, count - limit))
  return {0, 0, frees + window - at, reset}, at
end

local function take(key, limit, window, now)
  local state, at = look(key, limit, window, now)
  if state[1] == 0 then return state end
  redis.call('RPUSH', key, string.format('%.0f', at))
  redis.call('PEXPIRE', key, math.ceil(window / 1000))
  return {1, state[2] - 1, 0, at + window}
end

local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- The hash that live counts go into now. Its id holds its birth and is never used again: the ledger knows it by it.
local function live_batch(current, batch_prefix, now, nonce)
  local id = redis.call('GET', current)
  if not id then
    id = string.format('%.0f', now) .. '-' .. nonce
    redis.call('SET', current, id)
  end
  return batch_prefix .. id
end
