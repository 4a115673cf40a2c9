//! Rows of clients' uploads.
use super::{Ledger, now, unsigned};
use crate::StoreError;
use crate::uploads::{Ended, Upload};
use rusqlite::{OptionalExtension, Row, named_params, params};
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
        lasts: row.get("lasts")?,
    })
}

const SELECT_KEPT: &str =
    "SELECT name, client, plan, bytes, state, created, used, lasts FROM upload INDEXED BY kept_upload
     WHERE state IN ('partial', 'whole')";

/// A client's upload of this plan and name that has not ended.
const WHERE_KEPT_UPLOAD: &str = "client = :client AND plan = :plan AND name = :name AND state IN ('partial', 'whole')";

impl Ledger {
    /// Records that a client's upload is used now. Begins it if there is none and the client then
    /// has at most `max_bytes` bytes. Returns whether it is complete.
    pub(crate) fn open_upload(
        &self,
        client: ClientId,
        plan: &[u8; 32],
        name: &[u8; 32],
        bytes: u64,
        max_bytes: u64,
        lasts: bool,
    ) -> Result<bool, StoreError> {
        let now = now()?;
        self.write(|tx| {
            let find = format!("{SELECT_KEPT} AND client = ? AND plan = ? AND name = ?");
            let upload = tx.prepare(&find)?.query_row(params![client.0, plan, name], upload_of).optional()?;
            if let Some(upload) = upload.filter(|upload| upload.bytes == bytes) {
                let used = named_params! { ":now": now, ":client": client.0, ":plan": plan, ":name": name };
                tx.prepare(&format!("UPDATE upload SET used = :now WHERE {WHERE_KEPT_UPLOAD}"))?.execute(used)?;
                return Ok(Ok(upload.is_whole));
            }
            // An upload of another length begins anew and replaces the old one.
            let sum = "SELECT coalesce(sum(bytes), 0) AS held FROM upload INDEXED BY kept_upload
                 WHERE state IN ('partial', 'whole') AND client = ? AND NOT (plan = ? AND name = ?)";
            let total = tx.prepare(sum)?.query_row(params![client.0, plan, name], |row| unsigned(row, "held"))?;
            if total.saturating_add(bytes) > max_bytes {
                return Ok(Err(StoreError::NoRoom { held: total, most: max_bytes }));
            }
            tx.prepare(
                "INSERT INTO upload (name, client, plan, bytes, state, created, used, lasts)
                 VALUES (:name, :client, :plan, :bytes, 'partial', :now, :now, :lasts)
                 ON CONFLICT (client, plan, name) WHERE state IN ('partial', 'whole')
                 DO UPDATE SET bytes = :bytes, state = 'partial', used = :now",
            )?
            .execute(named_params! {
                ":name": name, ":client": client.0, ":plan": plan, ":bytes": bytes as i64, ":now": now,
                ":lasts": lasts,
            })?;
            Ok(Ok(false))
        })
    }

    /// Records whether an upload is complete; `false` if it has ended.
    pub(crate) fn set_upload_complete(
        &self,
        client: ClientId,
        plan: &[u8; 32],
        name: &[u8; 32],
        is_whole: bool,
    ) -> Result<bool, StoreError> {
        let state = if is_whole { "whole" } else { "partial" };
        let values = named_params! { ":state": state, ":client": client.0, ":plan": plan, ":name": name };
        let sql = format!("UPDATE upload SET state = :state WHERE {WHERE_KEPT_UPLOAD}");
        self.write(|tx| Ok(Ok(tx.prepare(&sql)?.execute(values)? > 0)))
    }

    pub(crate) fn uploads(&self) -> Result<Vec<Upload>, StoreError> {
        self.read(|db| db.prepare(&format!("{SELECT_KEPT} ORDER BY seq"))?.query_map([], upload_of)?.collect())
    }

    /// Calls `visit` with client, plan and name of each upload that has ended.
    pub(crate) fn visit_ended(&self, mut visit: impl FnMut(ClientId, [u8; 32], [u8; 32])) -> Result<(), StoreError> {
        let sql = "SELECT client, plan, name FROM upload WHERE state IN ('deleted', 'expired')";
        self.read(|db| {
            let mut select = db.prepare(sql)?;
            let mut rows = select.query([])?;
            while let Some(row) = rows.next()? {
                visit(ClientId(row.get("client")?), row.get("plan")?, row.get("name")?);
            }
            Ok(())
        })
    }

    /// Records that the files of these uploads are deleted; returns how many had not ended.
    pub(crate) fn end_uploads(&self, which: &[Upload], how: Ended) -> Result<usize, StoreError> {
        let (now, how) = (now()?, how.word());
        let sql = format!("UPDATE upload SET state = :how, ended = :now WHERE {WHERE_KEPT_UPLOAD}");
        self.write(|tx| {
            let (mut update, mut count) = (tx.prepare(&sql)?, 0);
            for Upload { client, plan, name, .. } in which {
                let values =
                    named_params! { ":how": how, ":now": now, ":client": client.0, ":plan": plan, ":name": name };
                count += update.execute(values)?;
            }
            Ok(Ok(count))
        })
    }
}
