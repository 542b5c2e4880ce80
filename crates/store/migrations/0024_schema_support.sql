-- Which versions may use this schema: those whose own schema has at least this number. A migration that takes something
-- away raises it, in the release after the one that stopped using it.
set local lock_timeout = '200ms';
set local statement_timeout = '10s';

create table schema_support (
    only_row boolean primary key default true check (only_row),
    oldest_supported bigint not null
);

-- Version 0.3.0 has schema 11.
insert into schema_support (oldest_supported) values (11);
