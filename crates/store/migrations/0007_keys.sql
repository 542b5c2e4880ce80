-- What owners do with their keys, and the history of every key.

-- Secrets that a rotation replaced. The newest one is in api_key; whichever is shown, the key is the same.
create table key_former_secret (
    hmac bytea primary key check (octet_length(hmac) = 32),
    key_id bigint not null references api_key,
    pepper_id text not null,
    shown text not null check (length(shown) = 12),
    -- From then on it is refused. A further rotation may bring it forward; nothing puts it off.
    ends_at timestamptz not null
);

create index key_former_secret_by_key on key_former_secret (key_id);

-- Appended in the transaction of the change it tells of, and never changed. It names no person and no secret, and so no
-- label either: that is free text.
create table key_change (
    id bigint generated always as identity primary key,
    key_id bigint not null references api_key,
    at timestamptz not null default clock_timestamp(),
    what text not null check (what in ('created', 'plan', 'label', 'expiry', 'rotated', 'revoked', 'erased')),
    by_whom text not null check (by_whom in ('operator', 'owner', 'registration')),
    -- Of a plan and an expiry; `became` also the plan that a key was created on, and when a replaced secret ends.
    was text,
    became text
);

create index key_change_by_key on key_change (key_id, id);

-- Whoever asks to be forgotten is found by the address, in any case.
create index api_key_by_email on api_key (lower(email));
