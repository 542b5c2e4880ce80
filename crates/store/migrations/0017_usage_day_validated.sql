-- Reads the whole table, while others go on using it.
set local lock_timeout = '200ms';
set local statement_timeout = '1h';

alter table usage_day validate constraint usage_day_until;
