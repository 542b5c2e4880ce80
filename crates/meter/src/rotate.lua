-- Closes the current batch, if it holds anything, and answers the ids of all that wait to be drained.
-- KEYS[1] the current batch's id, KEYS[2] the pending ones. ARGV batch prefix, nonce.
local id = redis.call('GET', KEYS[1])
if id and redis.call('EXISTS', ARGV[1] .. id) == 1 then
  redis.call('RPUSH', KEYS[2], id)
  redis.call('DEL', KEYS[1])
  live_batch(KEYS[1], ARGV[1], clock(), ARGV[2])
end
return redis.call('LRANGE', KEYS[2], 0, -1)
