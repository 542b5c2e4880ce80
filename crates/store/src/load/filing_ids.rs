//! Ids of filings whose document number is not theirs alone.

use super::LoadTransaction;
use crate::Result;
use crate::pool::query;

impl LoadTransaction {
    /// Gives staged filings of the IPE index different ids where several share a number: `1497743-1a2b3c4d`, with a hash
    /// of what tells documents apart (`Filing::is_same_document`). The filing that was stored first keeps the number;
    /// without one, the smallest hash does. So an id depends neither on the order of the rows nor on later files.
    pub(super) async fn separate_shared_filing_ids(&mut self) -> Result<()> {
        query(
            "with hashed as (
                 select ctid as place, id, cvm_code, category, doc_type, kind, delivered_on,
                        left(encode(sha256(convert_to(
                            concat_ws(chr(10), cvm_code, category, doc_type, kind, delivered_on::text), 'UTF8'
                        )), 'hex'), 8) as hash
                 from staged
                 where filing_set = 'ipe' and id not like 'row-%'
             ), judged as (
                 select place, hash,
                        coalesce(
                            (owner.cvm_code, owner.category, owner.doc_type, owner.kind, owner.delivered_on)
                                = (hashed.cvm_code, hashed.category, hashed.doc_type, hashed.kind, hashed.delivered_on),
                            row_number() over (partition by hashed.id order by hash) = 1
                        ) as keeps_number
                 from hashed
                 left join lateral (
                     select cvm_code, category, doc_type, kind, delivered_on
                     from filing_version
                     where filing_version.id = hashed.id
                     order by known_at desc
                     limit 1
                 ) owner on true
             )
             update staged
             set id = id || '-' || hash
             from judged
             where staged.ctid = place and not keeps_number",
        )
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }
}
