-- What a replica needs to follow the filings by what changed since the generation that it serves.

-- Generations count from one again after synthetic data was taken away: whoever follows must see that it is not the
-- same dataset any more.
alter table dataset add column lineage uuid not null default gen_random_uuid();

-- The generation that brought a row. What was there before this column is older than all that is asked for.
alter table filing_version add column generation bigint not null default 0;

create index filing_version_by_generation on filing_version (generation);
