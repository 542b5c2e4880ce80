-- Usage is going to be partitioned by month. The table as it is becomes the partition of everything until the end of next
-- month, and the check lets it be attached without reading its rows.
set local lock_timeout = '200ms';
set local statement_timeout = '10s';

do $$
begin
    execute format('alter table usage_day add constraint usage_day_until check (day < %L) not valid',
        (date_trunc('month', now() at time zone 'utc') + interval '2 months')::date);
end
$$;
