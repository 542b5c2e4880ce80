-- How a replica notices that the database is not the one it followed: after a restore, a point-in-time recovery, or the
-- promotion of a standby that lagged.
set local lock_timeout = '200ms';
set local statement_timeout = '10s';

-- Replacing the epoch makes every replica read everything again.
create table database_epoch (
    only_row boolean primary key default true check (only_row),
    epoch uuid not null default gen_random_uuid()
);

insert into database_epoch default values;

-- The epoch is copied with the database, so the database's oid is part of it: a copy starts with the same rows and then
-- diverges.
create function current_epoch() returns text language sql stable as $$
    select epoch || '/' || (select oid from pg_database where datname = current_database())
    from database_epoch
$$;

-- Every load that was ever committed, by an id that no other history of this database has. A replica that serves a load
-- which is not in here serves something that the database never had, or has lost.
create table dataset_load (
    dataset text not null references dataset on delete cascade,
    generation bigint not null,
    load_id uuid not null,
    primary key (dataset, generation)
);

-- A table of some eighty rows.
-- squawk-ignore adding-field-with-default
alter table dataset add column load_id uuid not null default gen_random_uuid();
insert into dataset_load (dataset, generation, load_id)
select id, generation, load_id
from dataset;

create function renew_load_id() returns trigger language plpgsql as $$
begin
    new.load_id := gen_random_uuid();
    return new;
end
$$;

create function record_load() returns trigger language plpgsql as $$
begin
    insert into dataset_load (dataset, generation, load_id) values (new.id, new.generation, new.load_id);
    return null;
end
$$;

create trigger dataset_renews_load_id
before update of generation on dataset
for each row execute function renew_load_id();

create trigger dataset_records_load
after insert or update of generation on dataset
for each row execute function record_load();

-- The same for changes of keys. A later migration adds the changes from before, because that takes long with many keys.
create table key_revision (
    revision bigint primary key,
    change_id uuid not null default gen_random_uuid()
);

create function record_key_revision() returns trigger language plpgsql as $$
begin
    insert into key_revision (revision) values (new.revision);
    return null;
end
$$;

create trigger api_key_records_revision
after insert or update of revision on api_key
for each row execute function record_key_revision();

-- Ids that are never issued twice, even when a restored database goes back to an earlier state of its sequences: before
-- rows are inserted, the sequence of their ids moves on to the milliseconds since 2020, with 12 bits for the ids of one
-- millisecond. They fit into the integers of JavaScript until 2089.
create function milliseconds_since_2020() returns bigint language sql volatile as $$
    select (extract(epoch from clock_timestamp()) * 1000)::bigint - 1577836800000
$$;

create function move_sequence_to_now() returns trigger language plpgsql as $$
declare
    sequence regclass := tg_argv[0];
    lowest_id bigint := milliseconds_since_2020() << 12;
    last_id bigint;
begin
    -- One at a time: another session may be moving it to the same millisecond.
    perform pg_advisory_lock(hashtext('vintem_ids'), sequence::int);
    execute format('select last_value from %s', sequence) into last_id;
    if last_id < lowest_id then
        perform setval(sequence, lowest_id);
    end if;
    perform pg_advisory_unlock(hashtext('vintem_ids'), sequence::int);
    return null;
end
$$;

create sequence api_key_id;
-- No client gives an id of its own.
-- squawk-ignore ban-alter-identity
alter table api_key alter column id drop identity;
alter table api_key alter column id set default nextval('api_key_id');
alter sequence api_key_id owned by api_key.id;
create trigger api_key_moves_sequence
before insert on api_key
for each statement execute function move_sequence_to_now('api_key_id');

create sequence delivery_id;
-- No client gives an id of its own.
-- squawk-ignore ban-alter-identity
alter table delivery alter column id drop identity;
alter table delivery alter column id set default nextval('delivery_id');
alter sequence delivery_id owned by delivery.id;
create trigger delivery_moves_sequence
before insert on delivery
for each statement execute function move_sequence_to_now('delivery_id');
