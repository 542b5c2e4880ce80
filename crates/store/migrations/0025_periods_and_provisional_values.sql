-- A rate may cover a period that ends on a later day, and the value of the running month is provisional.
set local lock_timeout = '200ms';
set local statement_timeout = '10s';

alter table observation
    add column period_end date,
    add column provisional boolean not null default false;
