-- What an operator should look at in the last response of a part that was read, although it was loaded.
set local lock_timeout = '200ms';
set local statement_timeout = '10s';

alter table source_part add column alerts text[] not null default '{}';
