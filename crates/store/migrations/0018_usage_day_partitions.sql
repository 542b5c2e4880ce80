-- One partition of usage_day for each month. The service adds partitions and drops expired ones.
set local lock_timeout = '200ms';
set local statement_timeout = '10s';

do $$
declare
    until date := (
        select substring(pg_get_constraintdef(oid) from '\d{4}-\d{2}-\d{2}')::date
        from pg_constraint
        where conname = 'usage_day_until'
    );
    former text := 'usage_day_until_' || to_char(until, 'YYYY_MM');
begin
    drop index usage_day_by_day;
    alter table usage_day rename constraint usage_day_pkey to usage_day_until_pkey;
    execute format('alter table usage_day rename to %I', former);

    create table usage_day (
        key_id bigint not null references api_key,
        day date not null,
        route_group text not null,
        requests bigint not null default 0,
        successful bigint not null default 0,
        client_errors bigint not null default 0,
        server_errors bigint not null default 0,
        rate_limited bigint not null default 0,
        primary key (key_id, day, route_group)
    ) partition by range (day);
    execute format('alter table usage_day attach partition %I for values from (minvalue) to (%L)', former, until);
end
$$;
