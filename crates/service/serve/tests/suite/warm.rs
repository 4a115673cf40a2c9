//! Warm-up: a model of which no times are known runs one made-up input before clients ask.
use crate::by_hand::server_state;
use crate::common::*;
use crate::dealers::lowered_by;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tacit_backends::dealt::Dealt;
use tacit_backends::fss::Fss;
use tacit_backends::{Backend, BackendError, ClientModel, Options, ServerModel, Trust};
use tacit_graph::{Model, Watch};
use tacit_serve::Catalog;

/// Models by name, salt and options. `warm` makes the server warm them up.
fn catalog_of(models: &[(&str, u8, &str)], warm: bool) -> Catalog {
    let mut catalog = Catalog::new(false);
    if warm {
        catalog.warm_up(&(Arc::new(Toy::default()) as Arc<dyn Backend>));
    }
    models.iter().for_each(|(name, salt, options)| offer(&mut catalog, name, &Toy::default(), *salt, options));
    catalog
}

/// Known estimates: phase, threads and seconds.
fn known(dir: &Path) -> Vec<(String, u32, f64)> {
    let db = server_state(dir);
    db.busy_timeout(Duration::from_secs(30)).unwrap();
    let sql = "SELECT phase, threads, seconds FROM profile WHERE device = 'lan, 1 threads' ORDER BY phase, seconds";
    let mut select = db.prepare(sql).unwrap();
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

#[test]
fn warms_up_unknown_models_once() {
    let dir = Folder::new();
    let first = [("one", 1, ""), ("plain", 2, "preparation=nothing")];
    let server = Running::serving_in(&dir, catalog_of(&first, true), |config| config.threads = 2);
    wait_until("three phases are known", || known(&dir).len() == 3);
    let phases: Vec<(String, u32)> = known(&dir).into_iter().map(|(phase, threads, _)| (phase, threads)).collect();
    let named = |phase: &str| (phase.to_owned(), 2);
    assert_eq!(phases, [named("offline"), named("online"), named("online")]);
    assert_eq!((server.handle.served(), server.handle.connections()), (0, 0));
    check_answer(&mut server.client("alice", "one"), 1);
    server.settle();
    drop(server);
    // The next start runs only a new model, so an impossible estimate of the others remains.
    server_state(&dir).execute("UPDATE profile SET seconds = 12345.0", []).unwrap();
    let second = [first[0], first[1], ("three", 3, "")];
    let server = Running::serving_in(&dir, catalog_of(&second, true), |config| config.threads = 2);
    wait_until("five phases are known", || known(&dir).len() == 5);
    drop(server);
    assert_eq!(known(&dir).iter().filter(|(.., seconds)| *seconds == 12345.0).count(), 3);
}

#[test]
fn warms_up_dealer_back_ends_without_dealer() {
    let mut catalog = Catalog::new(false);
    for backend in [Arc::new(Dealt) as Arc<dyn Backend>, Arc::new(Fss)] {
        catalog.offer("one", &*backend, lowered_by(&*backend, 1, "frac_bits=8")).unwrap();
        catalog.warm_up(&backend);
    }
    // The server has no dealer.
    let server = Running::serving(catalog, |_| {});
    wait_until("both phases of both are known", || known(&server.dir).len() == 4);
}

#[test]
fn serves_models_that_fail_to_warm_up() {
    let dir = Folder::new();
    // First without a warm-up, then with one that fails.
    let server = Running::serving_in(&dir, catalog_of(&[("one", 1, "")], false), |_| {});
    server.client("alice", "one").infer(&X).unwrap();
    drop(server);
    let mut catalog = catalog_of(&[("two", 2, "")], false);
    catalog.warm_up(&(Arc::new(Broken) as Arc<dyn Backend>));
    let server = Running::serving_in(&dir, catalog, |_| {});
    check_answer(&mut server.client("alice", "two"), 2);
    server.settle();
    drop(server);
    let learned = known(&dir);
    assert_eq!(learned.len(), 4, "{learned:?}");
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
    fn trust(&self) -> Trust {
        Trust::TwoParty
    }
    fn lower_watched(
        &self,
        model: &Model,
        options: &Options,
        watch: &Watch,
    ) -> Result<Arc<dyn ServerModel>, BackendError> {
        Toy::default().lower_watched(model, options, watch)
    }
    fn load(&self, public: &[u8], private: &[u8]) -> Result<Arc<dyn ServerModel>, BackendError> {
        Toy::default().load(public, private)
    }
    fn open(&self, _: &[u8]) -> Result<Arc<dyn ClientModel>, BackendError> {
        Err(BackendError::Misuse("it opens nothing"))
    }
}
