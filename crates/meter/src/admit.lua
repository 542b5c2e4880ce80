-- One call of a process: what it counted, then its callers' asks, each decided and counted. All of it once: a call
-- that arrives late, after a later one of the same process, does nothing.
-- KEYS the highest instant seen, the current batch's id, the last call of each process, the processes; then one log
-- for each ask.
-- ARGV window, now (0: Redis' clock), batch prefix, process, number of this call, whether it is a sign of life
-- ('beat' or ''), how many groups of counts; then for each group the number of the call that it belongs to, how many
-- counts, and for each field and count; then, in runs of asks that are alike: limit, 'take' or 'look', how many, and
-- for each the beginning of the field that it is counted in, to which the day is added, or ''.
-- Answers: now, how many processes live (0 if this was no sign of life); then for each ask what remains, if it is
-- taken as of now; otherwise -1 (would pass) or -2 (is refused), remaining, wait, reset.
local window, now, batch_prefix, process = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4]
local number = tonumber(ARGV[5])
if now == 0 then now = clock() end

local last = tonumber(call('HGET', KEYS[3], process) or 0)
if last >= number then return {now, 0} end
call('HSET', KEYS[3], process, number)

local batch
local function count(field, by)
  batch = batch or live_batch(KEYS[2], batch_prefix, now, process)
  call('HINCRBY', batch, field, by)
end

-- What an earlier call brought is here already if that call, or a later one, arrived.
local at = 8
for _ = 1, tonumber(ARGV[7]) do
  local is_new, fields = tonumber(ARGV[at]) > last, tonumber(ARGV[at + 1])
  if is_new then
    for field = at + 2, at + 2 * fields, 2 do count(ARGV[field], ARGV[field + 1]) end
  end
  at = at + 2 + 2 * fields
end

local live = 0
if ARGV[6] == 'beat' then
  call('ZADD', KEYS[4], now, process)
  live = call('ZCOUNT', KEYS[4], now - 3000000, '+inf')
  -- Of a process that was not heard of for a week no call arrives any more.
  for _, gone in ipairs(call('ZRANGEBYSCORE', KEYS[4], '-inf', now - 604800000000)) do
    call('ZREM', KEYS[4], gone)
    call('HDEL', KEYS[3], gone)
  end
end

-- While the clock has never been later than now, no log holds an instant after it, and little needs to be looked at.
local is_latest = now >= tonumber(call('GET', KEYS[1]) or 0)
local now_text, edges, day = text(now), edges_of(window, now), text(math.floor(now / 86400000000))
if is_latest then call('SET', KEYS[1], now_text) end

local answer, size, log = {now, live}, 2, 4
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
      -- Most pass: put it down first, and take it back from those that do not.
      local held = call('RPUSH', key, now_text)
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
return answer
