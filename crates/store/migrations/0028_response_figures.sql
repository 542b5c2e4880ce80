-- What the last response of a part was like, and what is usual for it, so that a change is noticed.
set local lock_timeout = '200ms';
set local statement_timeout = '10s';

alter table source_part
    add column received_bytes bigint not null default 0,
    add column load_milliseconds bigint not null default 0,
    -- The bad rows of each kind.
    add column bad_row_kinds text[] not null default '{}',
    add column bad_row_counts bigint[] not null default '{}',
    -- The usual share of blank fields of each column, of ten thousand.
    add column usual_columns text[] not null default '{}',
    add column usual_blanks bigint[] not null default '{}',
    -- How many minutes after they were expected the last values arrived, the newest last.
    add column arrival_delays bigint[] not null default '{}';
