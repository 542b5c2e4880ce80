-- Which versions of a filing replaced an earlier one: few of many, and what differs for whoever looks back.

alter table filing_version add column supersedes boolean not null default false;

update filing_version later
set supersedes = true
where exists (
    select 1
    from filing_version earlier
    where earlier.id = later.id and earlier.known_at < later.known_at
);

create index filing_version_superseding on filing_version (known_at) where supersedes;
