-- Counts outcomes, once: a group that is sent again because its answer was lost does nothing.
-- KEYS[1] the current batch's id, KEYS[2] the mark of this group. ARGV batch prefix, nonce, then field, count, …
if not redis.call('SET', KEYS[2], '1', 'NX', 'EX', 600) then return 0 end
local batch = live_batch(KEYS[1], ARGV[1], clock(), ARGV[2])
for at = 3, #ARGV, 2 do redis.call('HINCRBY', batch, ARGV[at], ARGV[at + 1]) end
return 1
