-- Counts outcomes, once: a group that is sent again because its answer was lost does nothing.
-- KEYS[1] the current batch's id, KEYS[2] the last group counted for this process.
-- ARGV batch prefix, nonce, the group's number, then field, count, …
if tonumber(redis.call('GET', KEYS[2]) or 0) >= tonumber(ARGV[3]) then return 0 end
redis.call('SET', KEYS[2], ARGV[3], 'EX', 604800)
local batch = live_batch(KEYS[1], ARGV[1], clock(), ARGV[2])
for at = 4, #ARGV, 2 do redis.call('HINCRBY', batch, ARGV[at], ARGV[at + 1]) end
return 1
