-- Changes of keys from before they were recorded. The trigger exists already, so none falls between. Nobody waits for this:
-- it only adds rows to a table that no older version knows.
set local lock_timeout = '200ms';
set local statement_timeout = '1h';

insert into key_revision (revision)
select revision
from api_key
on conflict do nothing;
