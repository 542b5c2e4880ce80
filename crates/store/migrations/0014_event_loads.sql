-- The load that wrote an event: the event is published as soon as that load is served, whatever other datasets do.
-- Events from before this column belong to none, and wait until all datasets are up to date.
set local lock_timeout = '200ms';
set local statement_timeout = '10s';

alter table event
    add column dataset text,
    add column generation bigint;
