-- Admits a group of visits and counts their usage.
-- KEYS[1] the current batch's id; then one log a visit.
-- ARGV window, now (0: Redis' clock), batch prefix, nonce; then for each visit: limit, 'take' or 'look', key id or ''.
-- Answers: now, then for each visit admitted, remaining, wait, reset.
local window, now, batch_prefix, nonce = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4]
if now == 0 then now = clock() end
local answer, batch = {now}, nil
for visit = 1, #KEYS - 1 do
  local at = 5 + (visit - 1) * 3
  local log, limit, counted = KEYS[visit + 1], tonumber(ARGV[at]), ARGV[at + 2]
  local state
  if ARGV[at + 1] == 'take' then state = take(log, limit, window, now) else state = look(log, limit, window, now) end
  for field = 1, 4 do answer[#answer + 1] = state[field] end
  if counted ~= '' then
    batch = batch or live_batch(KEYS[1], batch_prefix, now, nonce)
    local day = string.format('%.0f', math.floor(now / 86400000000))
    redis.call('HINCRBY', batch, counted .. ':' .. day .. ':r', 1)
    if state[1] == 0 then redis.call('HINCRBY', batch, counted .. ':' .. day .. ':l', 1) end
  end
end
return answer
