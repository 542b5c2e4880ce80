-- One partition of event and delivery for each day. The service adds partitions and drops expired ones.
set local lock_timeout = '200ms';
set local statement_timeout = '10s';

do $$
declare
    parent text;
    key_column text;
    until bigint;
    former text;
    former_index text;
begin
    foreach parent in array array['event', 'delivery'] loop
        key_column := case parent when 'event' then 'sequence' else 'id' end;
        until := (
            select substring(pg_get_constraintdef(oid) from '\d{6,}')::bigint
            from pg_constraint
            where conname = parent || '_until'
        );
        former := parent || '_until_' || to_char(date '2020-01-01' + ((until >> 12) / 86400000)::int, 'YYYY_MM_DD');
        execute format('drop trigger %I on %I', parent || '_moves_sequence', parent);
        execute format('alter table %I rename to %I', parent, former);
        for former_index in select indexname from pg_indexes where tablename = former loop
            execute format('alter index %I rename to %I', former_index, 'until_' || former_index);
        end loop;

        execute format('create table %I (like %I including defaults including constraints) partition by range (%I)',
            parent, former, key_column);
        execute format('alter table %I drop constraint %I', parent, parent || '_until');
        execute format('alter table %I add primary key (%I)', parent, key_column);
        if parent = 'delivery' then
            alter table delivery add foreign key (webhook) references webhook on delete cascade;
        end if;
        execute format('alter table %I attach partition %I for values from (minvalue) to (%s)', parent, former, until);
        execute format('alter sequence %I owned by %I.%I', parent || '_' || key_column, parent, key_column);
        execute format('create trigger %I before insert on %I for each statement execute function move_sequence_to_now(%L)',
            parent || '_moves_sequence', parent, parent || '_' || key_column);
    end loop;

    -- The former tables have the same indexes, or unique ones, and need no others.
    create index event_by_id on only event (id);
    create index event_by_position on only event (position);
    create index event_unpublished on only event (sequence) where position is null;
    create index delivery_waiting on only delivery (webhook, next_attempt_at, id) where state = 'waiting';
    create index delivery_sending on only delivery (id) where state = 'sending';
    create index delivery_by_webhook on only delivery (webhook, id);
end
$$;
