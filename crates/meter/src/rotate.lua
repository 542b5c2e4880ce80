-- The id of the batch to drain next, if any. The current batch is closed only if no other one waits: while draining
-- fails, counts accumulate in one hash instead of in more and more of them.
-- KEYS: the current batch's id, the pending batches. ARGV: batch prefix, process.
local pending = call('LINDEX', KEYS[2], 0)
if pending then return pending end
local id = call('GET', KEYS[1])
if not id or call('EXISTS', ARGV[1] .. id) == 0 then return false end
call('RPUSH', KEYS[2], id)
call('DEL', KEYS[1])
live_batch(KEYS[1], ARGV[1], clock(), ARGV[2])
return id
