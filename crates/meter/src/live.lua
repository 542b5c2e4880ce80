-- The live counts of one key in every batch that may not be stored yet, read atomically.
-- KEYS: the open batch, the closed batches. ARGV: chunk prefix, the key, then the prefixes of the fields to look up, to
-- which a day is appended.
-- Returns: chunk id, field, count, …
local answer = {}
local today = math.floor(clock() / 86400000000)
for _, batch in ipairs(unstored_batches(KEYS[1], KEYS[2])) do
  local chunk = chunk_for(batch, chunks_in(batch), ARGV[2])
  -- A batch holds no day earlier than the day before its creation: outcomes follow admissions within seconds.
  local first = math.floor(tonumber(string.match(batch, '^%d+')) / 86400000000) - 1
  for day = first, today do
    local fields = {}
    for at = 3, #ARGV do fields[at - 2] = ARGV[at] .. text(day) end
    for at, count in ipairs(call('HMGET', ARGV[1] .. chunk, unpack(fields))) do
      if count then
        answer[#answer + 1] = chunk
        answer[#answer + 1] = fields[at]
        answer[#answer + 1] = count
      end
    end
  end
end
return answer
