set local lock_timeout = '200ms';
set local statement_timeout = '10s';

-- Usage is stored in chunks, each recorded here in the transaction of its counts, so that none counts twice. One
-- partition a day, by the day on which the counts were begun. The service adds partitions and drops expired ones.
create table usage_chunk (
    created_on date not null,
    id text not null,
    -- Of the counts: a chunk with the same id and other counts means that some are missing.
    checksum bigint not null,
    stored_at timestamptz not null default now(),
    primary key (created_on, id)
) partition by range (created_on);

-- Days on which counts may be missing, and why.
create table usage_gap (
    id bigint generated always as identity primary key,
    first_day date not null,
    last_day date not null check (last_day >= first_day),
    reason text not null check (reason in ('redis_lost_writes', 'chunk_conflict')),
    noticed_at timestamptz not null default now()
);

create index usage_gap_by_day on usage_gap (last_day);

-- Adds a partition unless it exists. Attaching a table does not block those who use the others.
create function add_partition(parent text, partition text, lower_bound text, upper_bound text)
returns boolean language plpgsql as $$
begin
    perform pg_advisory_xact_lock(hashtext('vintem_partitions'));
    if to_regclass(quote_ident(partition)) is not null then
        return false;
    end if;
    execute format('create table %I (like %I including all)', partition, parent);
    execute format('alter table %I attach partition %I for values from (%L) to (%L)',
        parent, partition, lower_bound, upper_bound);
    return true;
end
$$;
