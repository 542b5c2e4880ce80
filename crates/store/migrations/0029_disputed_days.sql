-- The days on which a cross-check found that a served value does not agree with other data.
set local lock_timeout = '200ms';
set local statement_timeout = '10s';

create table disputed_day (
    check_id text not null references cross_check on delete cascade,
    dataset text not null,
    -- Which values of the dataset: a series, a currency, or the parity of a currency.
    part text not null,
    ref_date date not null,
    primary key (check_id, dataset, part, ref_date)
);
