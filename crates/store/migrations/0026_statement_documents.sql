-- Financial statements, one row for each form of a document that was ever published. CVM's archives hold only the newest
-- version of each document, so earlier ones exist nowhere else.
set local lock_timeout = '200ms';
set local statement_timeout = '10s';

create table statement_document (
    filing_set text not null check (filing_set in ('dfp', 'itr')),
    cvm_code bigint not null check (cvm_code > 0),
    reference_date date not null,
    version bigint not null,
    known_at timestamptz not null,
    -- The tables of the archive that it appears in, such as BPA_con.
    tables text[] not null,
    row_count bigint not null check (row_count > 0),
    -- The document in its canonical form.
    body bytea not null references raw_body,
    fetch_id bigint not null references raw_fetch,
    primary key (filing_set, cvm_code, reference_date, version, known_at)
);
