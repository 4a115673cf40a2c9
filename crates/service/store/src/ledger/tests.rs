//! Tests that the cost of the ledger's statements does not grow with the number of used ids.
use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const OWNER: Binding = Binding { client: ClientId([1; 32]), model: [2; 32], plan: [3; 32] };
const TOY: Origin<'_> = Origin { backend: "toy", peer: FolderId([4; 16]), maker: None };

fn with_burnt(dir: &Path, burnt: u32) -> Ledger {
    let ledger = Ledger::open(dir, Some(Party::Server), None).unwrap();
    let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
        INSERT INTO material (id, state, created, used) SELECT randomblob(16), 'burnt', 1, 2 FROM n";
    ledger.lock().execute(fill, [burnt]).unwrap();
    (0..4).for_each(|i| make_ready(&ledger, MaterialId::numbered(i)));
    ledger
}

fn make_ready(ledger: &Ledger, id: MaterialId) {
    ledger.reserve(id, OWNER, TOY, Some(100)).unwrap();
    ledger.finish(id, Stored { bytes: 1, digest: [0; 32] }).unwrap();
}

/// Steps of SQLite's virtual machine for each operation.
fn steps(ledger: &Ledger) -> Vec<(&'static str, u64)> {
    let counter = Arc::new(AtomicU64::new(0));
    let counts = counter.clone();
    let count = move || {
        counts.fetch_add(1, Ordering::Relaxed);
        false
    };
    ledger.lock().progress_handler(1, Some(count)).unwrap();
    let id = MaterialId::numbered(99);
    let work: [(&'static str, &dyn Fn()); 12] = [
        ("reserve", &|| ledger.reserve(id, OWNER, TOY, Some(100)).unwrap()),
        ("finish", &|| ledger.finish(id, Stored { bytes: 1, digest: [0; 32] }).unwrap()),
        ("list all", &|| assert_eq!(ledger.list(Which::All).unwrap().len(), 5)),
        ("list of a client", &|| assert_eq!(ledger.list(Which::Client(OWNER.client)).unwrap().len(), 5)),
        ("list of a binding", &|| assert_eq!(ledger.list(Which::Binding(OWNER)).unwrap().len(), 5)),
        ("live", &|| assert_eq!(ledger.live().unwrap().len(), 5)),
        ("still wanted", &|| ledger.mark_wanted(&[id]).unwrap()),
        ("unwanted", &|| assert!(ledger.unwanted_since(1).unwrap().is_empty())),
        ("claim", &|| assert_eq!(ledger.claim(id, OWNER).unwrap().bytes, 1)),
        ("burn", &|| ledger.burn(&[id]).unwrap()),
        ("claim again", &|| assert!(matches!(ledger.claim(id, OWNER), Err(StoreError::Burnt(_))))),
        ("recover", &|| ledger.release_unfinished().unwrap()),
    ];
    work.map(|(name, run)| {
        counter.store(0, Ordering::Relaxed);
        run();
        (name, counter.load(Ordering::Relaxed))
    })
    .into()
}

#[test]
fn cost_is_independent_of_used_ids() {
    let steps = |burnt| steps(&with_burnt(tempfile::tempdir().unwrap().path(), burnt));
    let (few, many) = (steps(10), steps(100_000));
    assert!(few.iter().all(|(_, n)| *n > 0), "the steps are counted: {few:?}");
    assert_eq!(few, many);
}
