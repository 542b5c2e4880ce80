-- The counts that are not stored yet: number, and microseconds since the creation of the oldest batch.
-- KEYS: the open batch, the closed batches. ARGV: chunk prefix.
local fields, oldest = 0
for _, batch in ipairs(unstored_batches(KEYS[1], KEYS[2])) do
  local chunks = chunks_in(batch)
  local held = 0
  for index = 0, (chunks or 1) - 1 do
    local chunk = chunks and batch .. ':' .. index or batch
    held = held + own('HLEN', ARGV[1] .. chunk)
  end
  if held > 0 then oldest = oldest or tonumber(string.match(batch, '^%d+')) end
  fields = fields + held
end
return {fields, oldest and math.max(0, clock() - oldest) or 0}
