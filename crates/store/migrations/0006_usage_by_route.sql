-- Usage is told apart by the part of the API too. What was counted before is under no part of it.

alter table usage_day add column route_group text not null default 'unknown';
alter table usage_day drop constraint usage_day_pkey;
alter table usage_day add primary key (key_id, day, route_group);
alter table usage_day alter column route_group drop default;
