-- What was published, and when we knew it. Nothing here is ever overwritten: a changed value is a further row,
-- and the current one is that of the newest known_at.

create table raw_fetch (
    id bigint generated always as identity primary key,
    dataset text not null,
    address text not null,
    fetched_at timestamptz not null,
    sha256 bytea not null check (octet_length(sha256) = 32)
);

-- One row a dataset that was ever loaded. Each load that brings something raises the generation in its own
-- transaction, with a notification on the channel vintem_generation.
create table dataset (
    id text primary key,
    generation bigint not null check (generation > 0),
    loaded_at timestamptz not null,
    origin text not null check (origin in ('real', 'synthetic'))
);

create table observation (
    series text not null,
    ref_date date not null,
    known_at timestamptz not null,
    value numeric not null,
    fetch_id bigint not null references raw_fetch,
    primary key (series, ref_date, known_at)
);

-- Every bulletin; the closing one is the day's rate. Before 1994-07-01 quote_currency is that of the day.
create table fx_bulletin (
    currency text not null,
    ref_date date not null,
    bulletin text not null check (bulletin in ('opening', 'intermediate', 'closing', 'interbank')),
    published_at timestamp not null,
    known_at timestamptz not null,
    quote_currency text not null,
    buy numeric not null,
    sell numeric not null,
    fetch_id bigint not null references raw_fetch,
    primary key (currency, ref_date, bulletin, published_at, known_at)
);

create table company_version (
    cvm_code integer not null check (cvm_code > 0),
    known_at timestamptz not null,
    name text not null,
    cnpj text not null check (cnpj = '' or length(cnpj) = 14),
    status text not null,
    sector text not null,
    trade_name text not null,
    tickers text[] not null,
    markets text[] not null,
    registered_on date,
    cancelled_on date,
    status_since date,
    category text not null,
    situation text not null,
    control text not null,
    city text not null,
    state text not null,
    auditor text not null,
    fetch_id bigint not null references raw_fetch,
    primary key (cvm_code, known_at)
);

create table filing_version (
    id text not null,
    known_at timestamptz not null,
    filing_set text not null check (filing_set in ('ipe', 'dfp', 'itr', 'fre', 'fca')),
    cvm_code integer not null check (cvm_code > 0),
    company_name text not null,
    category text not null,
    doc_type text not null,
    kind text not null,
    subject text not null,
    delivered_on date not null,
    reference_date date,
    version smallint not null,
    protocol text not null,
    url text not null,
    fetch_id bigint not null references raw_fetch,
    primary key (id, known_at)
);
