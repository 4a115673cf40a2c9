//! What a claim costs in processor time when many ids were used:
//! `cargo run --release -p tacit-store --example claim_cost [USED]`.
//!
//! Makes a folder in which USED ids (a million unless given) were used, and claims material of 64 KiB a few
//! hundred times. Processor time is that of this process, user and system; how long the disk takes to sync is
//! not in it.
use rustix::time::{ClockId, clock_gettime};
use tacit_ids::{ClientId, FolderId, MaterialId};
use tacit_store::{Binding, Origin, Party, Store};

const CLAIMS: u64 = 200;

fn cpu_ms() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 * 1e-6
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let used: u64 = std::env::args().nth(1).map_or(Ok(1_000_000), |text| text.parse())?;
    let dir = tempfile::tempdir()?;
    drop(Store::open(dir.path(), Party::Server, None)?);
    let db = rusqlite::Connection::open(dir.path().join("ledger.sqlite"))?;
    let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
        INSERT INTO material (id, state, created, used) SELECT randomblob(16), 'burnt', 1, 2 FROM n";
    db.execute(fill, [i64::try_from(used)?])?;
    drop(db);
    let start = cpu_ms();
    let store = Store::open(dir.path(), Party::Server, None)?;
    let opened = cpu_ms();
    let owner = Binding { client: ClientId([1; 32]), model: [2; 32], plan: [3; 32] };
    let origin = Origin { backend: "toy", peer: FolderId([4; 16]), maker: None };
    let ids = (0..CLAIMS).map(|_| MaterialId::random()).collect::<Result<Vec<_>, _>>()?;
    for id in &ids {
        store.put(*id, owner, origin, &[7; 64 << 10])?;
    }
    let stored = cpu_ms();
    for id in &ids {
        store.claim(*id, owner)?;
    }
    let claimed = cpu_ms();
    let per = |from: f64, to: f64| (to - from) / CLAIMS as f64;
    println!(
        "{used} used ids: opening {:.2} ms, put {:.3} ms, claim {:.3} ms of processor time each",
        opened - start,
        per(opened, stored),
        per(stored, claimed)
    );
    Ok(())
}
