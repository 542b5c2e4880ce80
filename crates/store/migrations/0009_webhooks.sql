-- Webhooks: whom to tell of what, and each thing that is to be told.
create table webhook (
    number bigint generated always as identity primary key,
    id text not null unique,
    key_id bigint not null references api_key,
    url text not null,
    -- What it wants to hear of; an empty list leaves nothing out.
    types text[] not null,
    companies text[] not null,
    categories text[] not null,
    -- The same without case and accents, by which they are compared.
    folded_categories text[] not null,
    series text[] not null,
    pairs text[] not null,
    status text not null default 'active' check (status in ('active', 'paused', 'disabled')),
    disabled_reason text check (disabled_reason in ('gone', 'failing')),
    created_at timestamptz not null,
    last_success_at timestamptz,
    -- Since when no attempt has succeeded; nothing where the last one did.
    failing_since timestamptz,
    -- Whether the last attempts took long.
    is_slow boolean not null default false,
    -- Sealed under a key that is not in the database.
    secret bytea not null,
    former_secret bytea,
    former_secret_ends_at timestamptz,
    check ((status = 'disabled') = (disabled_reason is not null)),
    check ((former_secret is null) = (former_secret_ends_at is null))
);

create index webhook_by_key on webhook (key_id);

-- One event for one webhook. Written in the transaction that publishes the event, so that neither is without the other.
create table delivery (
    id bigint generated always as identity primary key,
    webhook bigint not null references webhook on delete cascade,
    -- A test is of no event, and has a body of its own.
    event bigint references event on delete cascade,
    event_id text not null,
    type text not null,
    body text,
    state text not null default 'waiting' check (state in ('waiting', 'sending', 'delivered', 'dead')),
    -- Attempts that failed since it was written, or since it was last replayed.
    failures smallint not null default 0,
    next_attempt_at timestamptz not null,
    created_at timestamptz not null,
    first_attempt_at timestamptz,
    delivered_at timestamptz,
    -- What came of each attempt, the oldest first.
    attempts jsonb not null default '[]',
    check ((event is null) = (body is not null))
);

create index delivery_waiting on delivery (webhook, next_attempt_at, id) where state = 'waiting';
create index delivery_sending on delivery (id) where state = 'sending';
create index delivery_by_webhook on delivery (webhook, id);
create index delivery_by_event on delivery (event);
create index delivery_tests on delivery (created_at) where event is null;
