//! Rows of what clients have sent to be kept.
use super::{Ledger, now, unsigned};
use crate::StoreError;
use crate::uploads::{Ended, Upload};
use rusqlite::{OptionalExtension, Row, Transaction, named_params, params};
use tacit_ids::ClientId;

fn upload_of(row: &Row<'_>) -> rusqlite::Result<Upload> {
    Ok(Upload {
        name: row.get("name")?,
        client: ClientId(row.get("client")?),
        plan: row.get("plan")?,
        bytes: unsigned(row, "bytes")?,
        is_whole: row.get::<_, String>("state")? == "whole",
        created: unsigned(row, "created")?,
        used: unsigned(row, "used")?,
    })
}

const COLUMNS: &str = "SELECT name, client, plan, bytes, state, created, used FROM upload INDEXED BY kept_upload
     WHERE state IN ('partial', 'whole')";

/// Says that what a client sent under a name is gone.
fn end(tx: &Transaction<'_>, client: ClientId, name: &[u8; 32], how: Ended, now: i64) -> rusqlite::Result<usize> {
    tx.prepare_cached(
        "UPDATE upload SET state = :how, ended = :now
         WHERE client = :client AND name = :name AND state IN ('partial', 'whole')",
    )?
    .execute(named_params! { ":how": how.word(), ":now": now, ":client": client.0, ":name": name })
}

impl Ledger {
    /// What is kept of a client under a name for a plan, used now: that there is, or begun if the client then
    /// has no more than `most` bytes. Whether all of it is there.
    pub(crate) fn upload(
        &self,
        client: ClientId,
        (plan, name): (&[u8; 32], &[u8; 32]),
        bytes: u64,
        most: u64,
    ) -> Result<bool, StoreError> {
        let now = now()?;
        self.write(|tx| {
            let find = format!("{COLUMNS} AND client = ? AND name = ?");
            let found = tx.prepare_cached(&find)?.query_row(params![client.0, name], upload_of).optional()?;
            if let Some(found) = found {
                if found.plan == *plan && found.bytes == bytes {
                    let sql =
                        "UPDATE upload SET used = ? WHERE client = ? AND name = ? AND state IN ('partial', 'whole')";
                    tx.prepare_cached(sql)?.execute(params![now, client.0, name])?;
                    return Ok(Ok(found.is_whole));
                }
                // Of something else: it cannot be used any more.
                end(tx, client, name, Ended::Deleted, now)?;
            }
            let sum = "SELECT coalesce(sum(bytes), 0) AS held FROM upload INDEXED BY kept_upload
                 WHERE state IN ('partial', 'whole') AND client = ?";
            let held = tx.prepare_cached(sum)?.query_row([client.0], |row| unsigned(row, "held"))?;
            if held.saturating_add(bytes) > most {
                return Ok(Err(StoreError::NoRoom { held, most }));
            }
            tx.prepare_cached(
                "INSERT INTO upload (name, client, plan, bytes, state, created, used)
                 VALUES (:name, :client, :plan, :bytes, 'partial', :now, :now)",
            )?
            .execute(named_params! {
                ":name": name, ":client": client.0, ":plan": plan, ":bytes": bytes as i64, ":now": now,
            })?;
            Ok(Ok(false))
        })
    }

    /// Whether all of it is there, from now on.
    pub(crate) fn upload_is(&self, client: ClientId, name: &[u8; 32], is_whole: bool) -> Result<(), StoreError> {
        let state = if is_whole { "whole" } else { "partial" };
        self.write(|tx| {
            let sql = "UPDATE upload SET state = ? WHERE client = ? AND name = ? AND state IN ('partial', 'whole')";
            tx.prepare_cached(sql)?.execute(params![state, client.0, name])?;
            Ok(Ok(()))
        })
    }

    /// What is kept, in the order in which it was begun.
    pub(crate) fn uploads(&self) -> Result<Vec<Upload>, StoreError> {
        self.read(|db| db.prepare_cached(&format!("{COLUMNS} ORDER BY seq"))?.query_map([], upload_of)?.collect())
    }

    /// Says of these that their files are gone; how many were kept.
    pub(crate) fn end_uploads(&self, which: &[Upload], how: Ended) -> Result<usize, StoreError> {
        let now = now()?;
        self.write(|tx| {
            let mut ended = 0;
            for upload in which {
                ended += end(tx, upload.client, &upload.name, how, now)?;
            }
            Ok(Ok(ended))
        })
    }
}
