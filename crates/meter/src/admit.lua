-- One call of a process: first its counts, then the checks of its callers, each decided and counted. Everything is
-- applied once: a call that arrives after a later call of the same process does nothing. The number of the call is noted
-- last, so that its counts are sent again if the script fails.
-- KEYS: the latest time seen, the open batch, the closed batches, the last call of each process, the live processes; then
-- one log for each check.
-- ARGV: window, now (0: Redis' clock), chunk prefix, run of the server, process, number of this call, whether it is a
-- heartbeat ('beat' or ''), number of count groups; then for each group the number of its call, the number of counts,
-- and each field with its count; then, in runs of checks with the same limit and mode: limit, 'take' or 'look', number
-- of checks, and for each check the prefix of the field to count it in, to which the day is appended, or ''.
-- Returns: now, number of live processes (0 unless this was a heartbeat), the last call before this one; then for each
-- check the remaining quota if it is admitted and consumed as of now; otherwise -1 (would be admitted) or -2 (is
-- refused), remaining, wait, reset.
local window, now, chunk_prefix = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local run, process, number = ARGV[4], ARGV[5], tonumber(ARGV[6])
if now == 0 then now = clock() end

local last = tonumber(own('HGET', KEYS[4], process) or 0)
if last >= number then return {now, 0, last} end

local batch, chunks, chunk
local chunk_keys = {}
local function count(field, by)
  if not batch then
    batch = open_batch(KEYS[2], KEYS[3], now, run, process)
    chunks = chunks_in(batch)
    chunk = chunk_prefix .. batch .. ':0'
  end
  if chunks > 1 then
    local index = chunk_index(string.match(field, '^%d+'), chunks)
    chunk = chunk_keys[index]
    if not chunk then
      chunk = chunk_prefix .. batch .. ':' .. index
      chunk_keys[index] = chunk
    end
  end
  own('HINCRBY', chunk, field, by)
end

-- Counts of an earlier call are already applied if that call, or a later one, arrived.
local at = 9
for _ = 1, tonumber(ARGV[8]) do
  local is_new, fields = tonumber(ARGV[at]) > last, tonumber(ARGV[at + 1])
  if is_new then
    for field = at + 2, at + 2 * fields, 2 do count(ARGV[field], ARGV[field + 1]) end
  end
  at = at + 2 + 2 * fields
end

local live = 0
if ARGV[7] == 'beat' then
  own('ZADD', KEYS[5], now, process)
  live = call('ZCOUNT', KEYS[5], now - 3000000, '+inf')
  -- A process that sent no heartbeat for a week will make no more calls.
  for _, gone in ipairs(call('ZRANGEBYSCORE', KEYS[5], '-inf', now - 604800000000)) do
    call('ZREM', KEYS[5], gone)
    call('HDEL', KEYS[4], gone)
  end
end

-- While the clock has never been later than now, no log holds a later time, and most checks need few commands.
local is_latest = now >= (tonumber(own('GET', KEYS[1])) or 0)
local now_text, edges, day = text(now), edges_of(window, now), text(math.floor(now / 86400000000))
if is_latest then call('SET', KEYS[1], now_text) end

local answer, size, log = {now, live, last}, 3, 5
local function refuse_or_show(passes, remaining, wait, reset)
  answer[size + 1], answer[size + 2], answer[size + 3], answer[size + 4] = passes and -1 or -2, remaining, wait, reset
  size = size + 4
end
while ARGV[at] do
  local limit, takes, asks = tonumber(ARGV[at]), ARGV[at + 1] == 'take', tonumber(ARGV[at + 2])
  at = at + 3
  for ask = at, at + asks - 1 do
    log = log + 1
    local key = KEYS[log]
    if not takes then
      refuse_or_show(look(key, limit, window, now))
    elseif not is_latest then
      refuse_or_show(take(key, limit, window, now))
    else
      -- Most checks are admitted: append first, and remove the entry again if it is over the limit.
      local held = own('RPUSH', key, now_text)
      if held == 1 then call('PEXPIRE', key, edges.lifetime) else held = held - forget(key, edges) end
      if held <= limit then
        size = size + 1
        answer[size] = limit - held
      else
        call('RPOP', key)
        refuse_or_show(look(key, limit, window, now))
      end
    end
    if ARGV[ask] ~= '' then count(ARGV[ask] .. day, '1') end
  end
  at = at + asks
end
if batch and call('HLEN', chunk) >= MAX_FIELDS_IN_CHUNK then
  own('RPUSH', KEYS[3], batch)
  start_batch(KEYS[2], now, run, process, 2 * chunks)
end
call('HSET', KEYS[4], process, number)
return answer
