//! Dealers for tests, and how parties reach them.
use crate::common::{Running, X, expected, identity, model};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use tacit_backends::dealt::Dealt;
use tacit_backends::seam::ConnectionResources;
use tacit_backends::{Backend, Registry, ServerModel};
use tacit_client::{Client, ClientConfig, Connection, DealerConfig, RemoteDealer};
use tacit_serve::{Catalog, DealerServer, ServerConfig};
use tacit_store::keys;

pub fn registry() -> Registry {
    Registry::new(vec![Arc::new(Dealt)])
}

/// Lowers a model for `dealt` without audits, which would deal some materials a second time.
pub fn lowered(salt: u8) -> Arc<dyn ServerModel> {
    lowered_by(&Dealt, salt, "frac_bits=8,audit=0")
}

pub fn lowered_by(backend: &dyn Backend, salt: u8, options: &str) -> Arc<dyn ServerModel> {
    let mut model = model(salt);
    // The toy's model sets no bounds, which `dealt` and `fss` need.
    model.calibration.max_abs.fill(1000.0);
    model.calibration.extreme.fill(1000.0);
    backend.lower(&model, &options.parse().unwrap()).unwrap()
}

/// A dealer that runs until the test ends, with keys of all parties in `dir/keys`.
pub fn start_dealer(dir: &Path) -> SocketAddr {
    start_dealer_with(dir, |_| {})
}

/// Keys of all parties in `dir/keys`.
pub fn make_keys(dir: &Path) {
    let folder = dir.join("keys");
    if !folder.exists() {
        keys::init(&folder, &[], &["alice".into(), "bob".into()]).unwrap();
        keys::add_operator(&folder, "ops").unwrap();
        keys::add_dealer(&folder, &[]).unwrap();
    }
}

pub fn start_dealer_with(dir: &Path, adjust: impl FnOnce(&mut tacit_serve::DealerConfig)) -> SocketAddr {
    let folder = dir.join("keys");
    make_keys(dir);
    let numbers = dir.join(format!("numbers-{:?}.sqlite", thread::current().id()));
    let mut config =
        tacit_serve::DealerConfig::new("127.0.0.1:0".parse().unwrap(), keys::load_dealer(&folder).unwrap(), numbers);
    adjust(&mut config);
    let server = DealerServer::bind(registry(), config).unwrap();
    let address = server.address();
    thread::spawn(move || server.run());
    address
}

/// The dealer as `name` reaches it.
pub fn reached(dir: &Path, address: SocketAddr, name: &str) -> RemoteDealer {
    let pin = keys::dealer_pin(&dir.join("keys")).unwrap();
    RemoteDealer::new(DealerConfig::new(&address.to_string(), pin, identity(dir, name))).unwrap()
}

pub fn resources(dir: &Path, address: SocketAddr, name: &str) -> ConnectionResources {
    ConnectionResources { dealer: Some(Arc::new(reached(dir, address, name))), ..ConnectionResources::default() }
}

/// Serves `model` as `one` with material of this dealer.
pub fn serve_dealt(
    dir: &Path,
    dealer: SocketAddr,
    model: Arc<dyn ServerModel>,
    tune: impl FnOnce(&mut ServerConfig),
) -> Running {
    make_keys(dir);
    let mut catalog = Catalog::new(false);
    catalog.offer("one", &Dealt, model).unwrap();
    Running::serving_in(dir, catalog, |config| {
        config.resources = resources(dir, dealer, keys::ORDERS);
        tune(config);
    })
}

pub fn client_config(server: &Running, name: &str, dealer: SocketAddr) -> ClientConfig {
    ClientConfig { resources: resources(&server.dir, dealer, name), ..server.config(name) }
}

pub fn open_dealt(config: ClientConfig) -> Client {
    Connection::connect(registry(), config).unwrap().open("one", Some("dealt")).unwrap()
}

/// Checks the values of an answer of `model(1)`.
#[track_caller]
pub fn check_values(values: &[f64], input: &[f32]) {
    let expected = expected(1, input);
    assert!(values.iter().zip(&expected).all(|(g, w)| (g - w).abs() < 0.1), "{values:?} instead of {expected:?}");
}

/// Asks for [`X`] and checks the answer of `model(1)`.
#[track_caller]
pub fn check_dealt_answer(client: &mut Client) {
    check_values(&client.infer(&X).unwrap().values, &X);
}
