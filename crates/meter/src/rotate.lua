-- The id of the batch to drain next, if any. The current batch is closed only when no other waits: while draining
-- fails, counts gather in one hash instead of in ever more of them.
-- KEYS[1] the current batch's id, KEYS[2] the pending ones. ARGV batch prefix, process.
local pending = call('LINDEX', KEYS[2], 0)
if pending then return pending end
local id = call('GET', KEYS[1])
if not id or call('EXISTS', ARGV[1] .. id) == 0 then return false end
call('RPUSH', KEYS[2], id)
call('DEL', KEYS[1])
live_batch(KEYS[1], ARGV[1], clock(), ARGV[2])
return id
