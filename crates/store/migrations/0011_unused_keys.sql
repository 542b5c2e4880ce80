-- Free keys that nobody uses expire, and name and e-mail of their owner are erased.

-- The day from which a key counts as unused if it never was used: its creation, or for older keys the day of this
-- migration.
alter table api_key add column unused_since date not null default (now() at time zone 'utc')::date;

-- The service itself changes keys too.
alter table key_change drop constraint key_change_by_whom_check;
alter table key_change
    add constraint key_change_by_whom_check check (by_whom in ('operator', 'owner', 'registration', 'service'));
