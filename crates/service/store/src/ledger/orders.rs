//! Rows of material that a client has ordered from its helper and not yet received.
use super::{Ledger, binding_of, now, unsigned};
use crate::StoreError;
use crate::entry::{Binding, Ordered};
use rusqlite::{Row, params};
use tacit_ids::{ClientId, MaterialId};

fn ordered_of(row: &Row<'_>) -> rusqlite::Result<Ordered> {
    Ok(Ordered {
        id: MaterialId(row.get("id")?),
        binding: binding_of(row)?,
        helper: ClientId(row.get("helper")?),
        created: unsigned(row, "created")?,
    })
}

impl Ledger {
    /// Records that material is ordered from a helper: all of these ids, or none.
    pub(crate) fn order(&self, ids: &[MaterialId], binding: Binding, helper: ClientId) -> Result<(), StoreError> {
        let created = now()?;
        self.write(|tx| {
            let mut insert =
                tx.prepare("INSERT INTO ordered (id, helper, client, model, plan, created) VALUES (?, ?, ?, ?, ?, ?)")?;
            for id in ids {
                let row = params![id.0, helper.0, binding.client.0, binding.model, binding.plan, created];
                insert.execute(row)?;
            }
            Ok(Ok(()))
        })
    }

    pub(crate) fn ordered(&self) -> Result<Vec<Ordered>, StoreError> {
        let sql = "SELECT id, helper, client, model, plan, created FROM ordered ORDER BY rowid";
        self.read(|db| db.prepare(sql)?.query_map([], ordered_of)?.collect())
    }

    pub(crate) fn end_orders(&self, ids: &[MaterialId]) -> Result<(), StoreError> {
        self.write(|tx| {
            let mut delete = tx.prepare("DELETE FROM ordered WHERE id = ?")?;
            for id in ids {
                delete.execute([id.0])?;
            }
            Ok(Ok(()))
        })
    }
}
