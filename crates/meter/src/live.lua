-- The live counts of one key in every batch that may not be drained yet, in one view.
-- KEYS[1] the current batch's id, KEYS[2] the pending ones. ARGV batch prefix, key id.
-- Answers: batch id, field, count, …
local ids, answer = redis.call('LRANGE', KEYS[2], 0, -1), {}
local current = redis.call('GET', KEYS[1])
if current then ids[#ids + 1] = current end
local today = math.floor(clock() / 86400000000)
for _, id in ipairs(ids) do
  -- A batch holds no day before the eve of its birth: outcomes follow admissions within seconds.
  local first = math.floor(tonumber(string.match(id, '^%d+')) / 86400000000) - 1
  for day = first, today do
    for class in string.gmatch('rscel', '.') do
      local field = ARGV[2] .. ':' .. string.format('%.0f', day) .. ':' .. class
      local count = redis.call('HGET', ARGV[1] .. id, field)
      if count then
        answer[#answer + 1] = id
        answer[#answer + 1] = field
        answer[#answer + 1] = count
      end
    end
  end
end
return answer
