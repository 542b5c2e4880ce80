-- Takes one from each cap, or nothing if one of them is full.
-- KEYS: one log for each cap. ARGV: window, then one limit for each cap. Returns: microseconds until all would pass, 0
-- if taken.
local window, now, longest = tonumber(ARGV[1]), clock(), 0
for cap = 1, #KEYS do
  local _, _, wait = look(KEYS[cap], tonumber(ARGV[cap + 1]), window, now)
  if wait > longest then longest = wait end
end
if longest > 0 then return longest end
for cap = 1, #KEYS do take(KEYS[cap], tonumber(ARGV[cap + 1]), window, now) end
return 0
