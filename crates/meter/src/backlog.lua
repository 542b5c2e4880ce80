-- The counts that are not stored yet: number, and microseconds since the creation of the oldest batch. In a batch of many
-- chunks only some are looked at, and the number is an estimate: a long backlog must not take longer to describe.
-- KEYS: the open batch, the closed batches. ARGV: chunk prefix.
local MAX_CHUNKS_READ = 16
local fields, oldest = 0
for _, batch in ipairs(unstored_batches(KEYS[1], KEYS[2])) do
  local chunks = chunks_in(batch)
  local step = math.ceil((chunks or 1) / MAX_CHUNKS_READ)
  local held = 0
  -- From the last one: the first are stored first.
  for index = (chunks or 1) - 1, 0, -step do
    local chunk = chunks and batch .. ':' .. index or batch
    held = held + own('HLEN', ARGV[1] .. chunk) * math.min(step, index + 1)
  end
  if held > 0 then oldest = oldest or tonumber(string.match(batch, '^%d+')) end
  fields = fields + held
end
return {fields, oldest and math.max(0, clock() - oldest) or 0}
