-- The id of the next chunk to store, if this process is the one that stores the counts of this server; it remains so
-- until it has not asked for a while. The open batch is closed if no other waits, and if this process says so.
-- KEYS: the open batch, the closed batches, the process that stores, the open batch and the closed batches of earlier
-- versions. ARGV: chunk prefix, process, milliseconds until another process may store, 'close' or '', the batch of the
-- last chunk and the index after it, chunk prefix of earlier versions.
local open, closed, storing, former_open, former_closed = unpack(KEYS)
local chunk_prefix, process, patience, close, last_batch, next_index, former_prefix = unpack(ARGV)

local owner = own('GET', storing)
if owner and owner ~= process then return false end
call('SET', storing, process, 'PX', patience)

-- Replicas of an earlier version still count into batches of their own.
local former = own('GET', former_open)
if former then
  call('DEL', former_open)
  own('RPUSH', former_closed, former)
end
while true do
  former = own('LPOP', former_closed)
  if not former then break end
  if call('EXISTS', former_prefix .. former) == 1 then
    call('RENAME', former_prefix .. former, chunk_prefix .. former)
    own('RPUSH', closed, former)
  end
end

if close == 'close' and own('LLEN', closed) == 0 then
  local batch = own('GET', open)
  if not batch then return false end
  call('DEL', open)
  call('RPUSH', closed, batch)
end

while true do
  local batch = own('LINDEX', closed, 0)
  if not batch then return false end
  local chunks = chunks_in(batch)
  if not chunks then
    if call('EXISTS', chunk_prefix .. batch) == 1 then return batch end
  else
    local first = batch == last_batch and tonumber(next_index) or 0
    for index = first, chunks - 1 do
      local chunk = batch .. ':' .. index
      if call('EXISTS', chunk_prefix .. chunk) == 1 then return chunk end
    end
  end
  call('LPOP', closed)
end
