-- Reads the whole tables, while others go on using them.
set local lock_timeout = '200ms';
set local statement_timeout = '1h';

alter table event validate constraint event_until;
alter table delivery validate constraint delivery_until;
