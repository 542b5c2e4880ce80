-- Parts of a source are windows of years now, each with attempts of its own. A failed one is repeated later and later.
-- Columns and rows that are no longer used stay for the version before.
set local lock_timeout = '200ms';
set local statement_timeout = '10s';

alter table source_part
    add column member_fingerprint text,
    add column newest_date date,
    add column is_open boolean not null default true,
    add column failed_attempts bigint not null default 0,
    add column failing_since timestamptz,
    add column next_attempt_at timestamptz,
    add column rejected_etag text,
    add column rejected_last_modified text,
    add column rejected_by text;

-- A whole series was one part. Its windows count as filled, so that their next values are news. Daily series have
-- windows of three years, monthly ones of ten, and exchange rates of one.
insert into source_part (source, part, checked_at, loaded_at, rows, filled_at, newest_date)
select whole.source, first_year::text, whole.checked_at, whole.loaded_at, 0, whole.filled_at,
       least(whole.covered_until, make_date(first_year + years - 1, 12, 31))
from source_part whole
cross join lateral (select case when whole.source like 'ipca%' then 10 else 3 end as years) size
cross join lateral generate_series(1980, extract(year from whole.covered_until)::integer) first_year
where whole.part = whole.source and whole.filled_at is not null and first_year % years = 0;

insert into source_part (source, part, checked_at, loaded_at, rows, filled_at, newest_date)
select whole.source, whole.part || '-' || year, whole.checked_at, whole.loaded_at, 0, whole.filled_at,
       least(whole.covered_until, make_date(year, 12, 31))
from source_part whole
cross join lateral generate_series(1984, extract(year from whole.covered_until)::integer) year
where whole.source = 'fx' and length(whole.part) = 3 and whole.filled_at is not null;

-- What it replaces is no longer looked at.
update source_part
set is_open = false, failed_at = null, failure = null
where part = source or (source = 'fx' and length(part) = 3) or part = '*';
