-- Keys are stored as HMACs under a pepper that is not in the database.

create sequence api_key_revision;

create table api_key (
    id bigint generated always as identity primary key,
    hmac bytea not null unique check (octet_length(hmac) = 32),
    pepper_id text not null,
    shown text not null check (length(shown) = 12),
    plan text not null check (plan in ('free', 'bronze', 'gold', 'platinum')),
    name text not null,
    email text not null,
    label text not null default '',
    created_at timestamptz not null default now(),
    last_used_on date,
    expires_at timestamptz,
    revoked_at timestamptz,
    -- Raised by each change, in commit order: what every replica follows.
    revision bigint not null
);

create index api_key_by_revision on api_key (revision);

-- requests = successful + client_errors + server_errors + rate_limited + those whose outcome is not known.
create table usage_day (
    key_id bigint not null references api_key,
    day date not null,
    requests bigint not null default 0,
    successful bigint not null default 0,
    client_errors bigint not null default 0,
    server_errors bigint not null default 0,
    rate_limited bigint not null default 0,
    primary key (key_id, day)
);

create index usage_day_by_day on usage_day (day);

-- Which batches of live counts are in usage_day: written in the same transaction, so no batch counts twice.
create table usage_ledger (
    batch_id text primary key,
    drained_at timestamptz not null default now()
);

create index usage_ledger_by_time on usage_ledger (drained_at);
