-- Events and deliveries are going to be partitioned by day: by ids that advance with the time. The tables as they are
-- become the partitions of everything until the day after tomorrow, and the checks let them be attached without reading
-- their rows.
set local lock_timeout = '200ms';
set local statement_timeout = '10s';

create sequence event_sequence;
-- No client gives a sequence of its own.
-- squawk-ignore ban-alter-identity
alter table event alter column sequence drop identity;
alter table event alter column sequence set default nextval('event_sequence');
create trigger event_moves_sequence
before insert on event
for each statement execute function move_sequence_to_now('event_sequence');

-- A delivery disappears with its own partition. Without the constraint, an event that is deleted leaves its deliveries.
-- squawk-ignore ban-drop-constraint
alter table delivery drop constraint delivery_event_fkey;

-- The least id of a day (UTC).
create function first_id_of_day(day date) returns bigint language sql immutable as $$
    select ((day - date '2020-01-01')::bigint * 86400000) << 12
$$;

do $$
declare
    until bigint := first_id_of_day((now() at time zone 'utc')::date + 2);
begin
    execute format('alter table event add constraint event_until check (sequence < %s) not valid', until);
    execute format('alter table delivery add constraint delivery_until check (id < %s) not valid', until);
end
$$;
