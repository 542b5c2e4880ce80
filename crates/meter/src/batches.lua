-- Live counts gather in batches: one is open, the others are closed and wait to be stored. A batch consists of chunks,
-- which are hashes of counts (`key:group:class:day`); each chunk is stored in one transaction. A batch opens with one
-- chunk. When a chunk is full, the batch is closed and the next one has twice as many. So chunks stay small however long
-- nothing is stored, all counts of a key in a batch are in the same chunk, and there are few batches.
--
-- A batch's id is `time-run-process/chunks`, a chunk's id that of its batch and `:index`. Ids are never reused, because
-- the ledger records those that are stored. `run` is the run of the Redis server: a server that lost its last writes may
-- show a batch that is stored already, so nothing is added to batches of earlier runs.
--
-- An id without `/chunks` is a batch of an earlier version, with a single chunk of the same name.
local MAX_FIELDS_IN_CHUNK = 5000

local function chunks_in(batch) return tonumber(string.match(batch, '/(%d+)$')) end

-- Where in a batch the counts of a key are. 65521 is prime: ids of keys are often multiples of a power of two.
local function chunk_index(key, chunks) return tonumber(key) % 65521 % chunks end

-- The id of the chunk with the counts of a key.
local function chunk_for(batch, chunks, key)
  if not chunks then return batch end
  return batch .. ':' .. chunk_index(key, chunks)
end

local function start_batch(open, now, run, process, chunks)
  local batch = text(now) .. '-' .. run .. '-' .. process .. '/' .. chunks
  call('SET', open, batch)
  return batch
end

-- The batch that receives the counts of this run.
local function open_batch(open, closed, now, run, process)
  local batch = own('GET', open)
  local batch_run = batch and string.match(batch, '^%d+%-(%w+)%-%w+/%d+$')
  if batch_run == run then return batch end
  if batch_run then own('RPUSH', closed, batch) end
  return start_batch(open, now, run, process, 1)
end

-- All batches with counts that may not be stored yet, the oldest first.
local function unstored_batches(open, closed)
  local batches = own('LRANGE', closed, 0, -1)
  batches[#batches + 1] = own('GET', open) or nil
  return batches
end
