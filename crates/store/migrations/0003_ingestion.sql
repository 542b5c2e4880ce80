-- Ingestion: what came from upstream byte for byte, what was refused, how each part of a source stands, and the events
-- that follow from what changed.

-- Bodies as they were received, but for columns about natural persons, which are blanked; compressed by zstd. The same
-- bytes are kept once.
create table raw_body (
    sha256 bytea primary key check (octet_length(sha256) = 32),
    size bigint not null check (size >= 0),
    compressed bytea not null
);

-- sha256 is that of the bytes received; body is what is kept of them.
alter table raw_fetch
    add column status smallint,
    add column content_type text,
    add column body bytea references raw_body,
    add constraint raw_fetch_once unique (dataset, address, sha256);

-- A part is what is fetched and loaded at once: a series, a currency, the registry, a year of filings.
create table source_part (
    source text not null,
    part text not null,
    -- When upstream last gave a good answer, and when one last brought something.
    checked_at timestamptz,
    loaded_at timestamptz,
    -- The validators and the bytes of the last good file.
    etag text,
    last_modified text,
    sha256 bytea,
    rows bigint not null default 0,
    -- Of a part that is asked for by windows: up to which day it was.
    covered_until date,
    -- From when on its whole history was there; what is appended later is news.
    filled_at timestamptz,
    failed_at timestamptz,
    failure text,
    primary key (source, part)
);

-- What did not fit. Line 0 is the whole file.
create table quarantine (
    id bigint generated always as identity primary key,
    source text not null,
    part text not null,
    sha256 bytea not null check (octet_length(sha256) = 32),
    line bigint not null,
    reason text not null,
    content text not null,
    quarantined_at timestamptz not null,
    unique (source, part, sha256, line)
);

-- Rows that a good file no longer had, and the first such file. Missing from a second one they are absent.
create table missing_row (
    dataset text not null,
    key text not null,
    first_missed_in bytea not null,
    primary key (dataset, key)
);

-- Absence is a further version; the columns beside it repeat the last one.
alter table company_version add column absent boolean not null default false;
alter table filing_version add column absent boolean not null default false;

-- Tickers are their own source, so they are versions of their own. The column is written no more and goes later.
alter table company_version alter column tickers set default '{}';

create table security_version (
    document_id bigint not null,
    ticker text not null,
    known_at timestamptz not null,
    cnpj text not null check (length(cnpj) = 14),
    reference_date date not null,
    version smallint not null,
    market text not null,
    segment text not null,
    traded_from date,
    traded_until date,
    fetch_id bigint not null references raw_fetch,
    primary key (document_id, ticker, known_at)
);

create index security_version_by_cnpj on security_version (cnpj);

-- The outbox: written in the transaction of the rows that it tells of. What it says is looked up by its subject.
create table event (
    sequence bigint generated always as identity primary key,
    id text not null unique default 'evt_' || replace(gen_random_uuid()::text, '-', ''),
    type text not null,
    occurred_at timestamptz not null,
    subject jsonb not null
);

create index event_by_time on event (occurred_at);

-- How one series agrees with another that says the same: written after each load that touches either.
create table cross_check (
    id text primary key,
    checked_at timestamptz not null,
    compared bigint not null,
    differing bigint not null,
    largest_difference numeric not null,
    worst_date date
);
