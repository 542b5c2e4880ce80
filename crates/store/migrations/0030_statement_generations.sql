-- What a replica needs to follow the statements by what changed since the generation that it serves.
set local lock_timeout = '200ms';
set local statement_timeout = '10s';

-- Rows from before these columns count as the oldest. No index: the table has one short row for
-- each form of a document, some 40,000 in all.
alter table statement_document
    add column generation bigint not null default 0,
    add column supersedes boolean not null default false;

update statement_document
set supersedes = true
from statement_document earlier
where earlier.filing_set = statement_document.filing_set
  and earlier.cvm_code = statement_document.cvm_code
  and earlier.reference_date = statement_document.reference_date
  and earlier.version = statement_document.version
  and earlier.known_at < statement_document.known_at;
