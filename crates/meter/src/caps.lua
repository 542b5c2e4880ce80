-- Takes one of each cap, or of none if one of them is full.
-- KEYS one log a cap. ARGV window, then a limit for each. Answers: microseconds until all would pass, 0 if taken.
local window, now, wait = tonumber(ARGV[1]), clock(), 0
for cap = 1, #KEYS do
  local state = look(KEYS[cap], tonumber(ARGV[cap + 1]), window, now)
  if state[3] > wait then wait = state[3] end
end
if wait > 0 then return wait end
for cap = 1, #KEYS do take(KEYS[cap], tonumber(ARGV[cap + 1]), window, now) end
return 0
