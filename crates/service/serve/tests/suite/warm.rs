//! One made-up input for models that nothing is known of, before the first client asks.
use crate::common::*;
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tacit_backends::Backend;
use tacit_backends::dealt::Dealt;
use tacit_backends::fss::Fss;
use tacit_serve::Catalog;

const X: [f32; 4] = [1.0, 2.0, 3.0, 4.0];

/// Models by name and options; `warm`: whether those of the toy are warmed up.
fn catalog_of(models: &[(&str, u8, &str)], warm: bool) -> Catalog {
    let mut catalog = Catalog::new(false);
    let toy: Arc<dyn Backend> = Arc::new(Toy::default());
    if warm {
        catalog.warm_up(&toy);
    }
    models.iter().for_each(|(name, salt, options)| offer(&mut catalog, name, &Toy::default(), *salt, options));
    catalog
}

/// What the state file knows: phase, threads and seconds, in the order in which it was learned.
fn known(dir: &Path) -> Vec<(String, u32, f64)> {
    let db = Connection::open(dir.join("server-material/server.sqlite")).unwrap();
    db.busy_timeout(Duration::from_secs(30)).unwrap();
    let sql = "SELECT phase, threads, seconds FROM profile WHERE device = 'lan, 1 threads' ORDER BY phase, seconds";
    let mut select = db.prepare(sql).unwrap();
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

#[test]
fn what_is_not_known_is_learned_before_anybody_asks_and_only_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let first = [("one", 1, ""), ("plain", 2, "preparation=nothing")];
    let server = Running::with(path, catalog_of(&first, true), |config| config.threads = 2);
    wait_until("three phases are known", || known(path).len() == 3);
    let phases: Vec<(String, u32)> = known(path).into_iter().map(|(phase, threads, _)| (phase, threads)).collect();
    let named = |phase: &str| (phase.to_owned(), 2);
    assert_eq!(phases, [named("offline"), named("online"), named("online")]);
    assert_eq!((server.handle.served(), server.handle.connections()), (0, 0), "it counts as nobody's");
    assert_eq!(server.client(path, "alice", "one").infer(&X).unwrap().values, expected(1, &X));
    server.settle();
    drop(server);
    // A figure that no run gives; the file knows these models, and only a new one is run.
    let db = Connection::open(path.join("server-material/server.sqlite")).unwrap();
    db.execute("UPDATE profile SET seconds = 12345.0", []).unwrap();
    drop(db);
    let second = [first[0], first[1], ("three", 3, "")];
    let server = Running::with(path, catalog_of(&second, true), |config| config.threads = 2);
    wait_until("five phases are known", || known(path).len() == 5);
    drop(server);
    assert_eq!(known(path).iter().filter(|(.., seconds)| *seconds == 12345.0).count(), 3);
}

#[test]
fn what_a_dealer_makes_is_dealt_here_for_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut model = model(1);
    // What the toy does not care about: how large values get.
    model.calibration.max_abs.fill(1000.0);
    model.calibration.extreme.fill(1000.0);
    let mut catalog = Catalog::new(false);
    for backend in [Arc::new(Dealt) as Arc<dyn Backend>, Arc::new(Fss)] {
        let lowered = backend.lower(&model, &"frac_bits=8".parse().unwrap()).unwrap();
        catalog.offer("one", &*backend, lowered).unwrap();
        catalog.warm_up(&backend);
    }
    // The server has no dealer.
    let server = Running::with(dir.path(), catalog, |_| {});
    wait_until("both phases of both are known", || known(dir.path()).len() == 4);
    drop(server);
}

#[test]
fn what_cannot_be_warmed_up_is_served_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    // None is asked for; then memory does not allow it; then it fails inside.
    let server = Running::with(path, catalog_of(&[("one", 1, "")], false), |_| {});
    server.client(path, "alice", "one").infer(&X).unwrap();
    drop(server);
    let mut catalog = catalog_of(&[("two", 2, "")], false);
    // A client of another plan: its part of the phases is one that this server does not run.
    let broken: Arc<dyn Backend> = Arc::new(Broken);
    catalog.warm_up(&broken);
    let server = Running::with(path, catalog, |_| {});
    assert_eq!(server.client(path, "alice", "two").infer(&X).unwrap().values, expected(2, &X));
    server.settle();
    drop(server);
    let learned = known(path);
    assert_eq!(learned.len(), 4, "from the jobs of clients alone: {learned:?}");
}

/// A toy whose clients cannot open anything.
struct Broken;

impl Backend for Broken {
    fn id(&self) -> &'static str {
        "toy"
    }
    fn about(&self) -> &'static str {
        "opens nothing"
    }
    fn trust(&self) -> tacit_backends::Trust {
        tacit_backends::Trust::TwoParty
    }
    fn lower_watched(
        &self,
        model: &tacit_graph::Model,
        options: &tacit_backends::Options,
        watch: &tacit_graph::Watch,
    ) -> Result<Arc<dyn tacit_backends::ServerModel>, tacit_backends::BackendError> {
        Toy::default().lower_watched(model, options, watch)
    }
    fn load(
        &self,
        public: &[u8],
        private: &[u8],
    ) -> Result<Arc<dyn tacit_backends::ServerModel>, tacit_backends::BackendError> {
        Toy::default().load(public, private)
    }
    fn open(&self, _: &[u8]) -> Result<Arc<dyn tacit_backends::ClientModel>, tacit_backends::BackendError> {
        Err(tacit_backends::BackendError::Misuse("it opens nothing"))
    }
}
