-- Events are published in one order that never changes: a worker gives each its position and its body, once what it
-- tells of is served. Until then it has neither.
alter table event add column position bigint unique;
alter table event add column body text;

create index event_unpublished on event (sequence) where position is null;

-- The ends of what was published: the last position that was given, and the last that was forgotten.
create table event_feed (
    only_row boolean primary key default true check (only_row),
    last_position bigint not null default 0,
    forgotten_position bigint not null default 0
);

insert into event_feed default values;
