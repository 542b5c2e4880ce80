set local lock_timeout = '200ms';
set local statement_timeout = '10s';

-- What the pepper makes of a fixed text: with another pepper, no key would be recognized.
create table pepper_verifier (
    only_row boolean primary key default true check (only_row),
    verifier bytea not null check (octet_length(verifier) = 32)
);
