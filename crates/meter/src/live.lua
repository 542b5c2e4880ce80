-- The live counts of one key in every batch that may not be drained yet, read atomically.
-- KEYS: the current batch's id, the pending batches. ARGV: batch prefix, then the prefixes of the fields to look up, to
-- which a day is appended.
-- Returns: batch id, field, count, …
local ids, answer = call('LRANGE', KEYS[2], 0, -1), {}
local current = call('GET', KEYS[1])
if current then ids[#ids + 1] = current end
local today = math.floor(clock() / 86400000000)
for _, id in ipairs(ids) do
  -- A batch holds no day earlier than the day before its creation: outcomes follow admissions within seconds.
  local first = math.floor(tonumber(string.match(id, '^%d+')) / 86400000000) - 1
  for day = first, today do
    local fields = {}
    for at = 2, #ARGV do fields[at - 1] = ARGV[at] .. text(day) end
    for at, count in ipairs(call('HMGET', ARGV[1] .. id, unpack(fields))) do
      if count then
        answer[#answer + 1] = id
        answer[#answer + 1] = fields[at]
        answer[#answer + 1] = count
      end
    end
  end
end
return answer
