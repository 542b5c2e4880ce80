-- Parities: the rate against the dollar that a bulletin states beside the rate in reais. Null where none was published,
-- and in bulletins that an earlier version stored: those are filled in once, from the archived body of their fetch.
alter table fx_bulletin
    add column parity_buy numeric,
    add column parity_sell numeric,
    add constraint fx_bulletin_parity_sides check ((parity_buy is null) = (parity_sell is null));

create index fx_bulletin_without_parity on fx_bulletin (fetch_id) where parity_buy is null;

-- One row: the last fetch whose archived body was read for parities.
create table parity_backfill (
    last_fetch_id bigint not null
);

insert into parity_backfill (last_fetch_id) values (0);
