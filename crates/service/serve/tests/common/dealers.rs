//! Dealers for tests, and how parties reach them.
use crate::common::model;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use tacit_backends::dealt::Dealt;
use tacit_backends::seam::ConnectionResources;
use tacit_backends::{Backend, Registry, ServerModel};
use tacit_client::{DealerConfig, RemoteDealer};
use tacit_ids::ClientId;
use tacit_serve::DealerServer;
use tacit_store::keys;

pub const X: [f32; 4] = [1.0, 2.0, 3.0, 4.0];

pub fn registry() -> Registry {
    Registry::new(vec![Arc::new(Dealt)])
}

/// Lowers a model for `dealt` without audits. By default one material in a hundred is audited and
/// dealt a second time, and tests count what is dealt.
pub fn lowered(salt: u8) -> Arc<dyn ServerModel> {
    lowered_by(&Dealt, salt, "frac_bits=8,audit=0")
}

pub fn lowered_by(backend: &dyn Backend, salt: u8, options: &str) -> Arc<dyn ServerModel> {
    let mut model = model(salt);
    // What the toy does not care about: how large values get.
    model.calibration.max_abs.fill(1000.0);
    model.calibration.extreme.fill(1000.0);
    backend.lower(&model, &options.parse().unwrap()).unwrap()
}

/// A dealer that runs until the test ends, with keys for everybody in `dir/keys`.
pub fn dealer(dir: &Path) -> SocketAddr {
    dealer_with(dir, |_| {})
}

/// Keys for everybody in `dir/keys`.
pub fn make_keys(dir: &Path) {
    let folder = dir.join("keys");
    if !folder.exists() {
        keys::init(&folder, &[], &["alice".into(), "bob".into()]).unwrap();
        keys::add_operator(&folder, "ops").unwrap();
        keys::add_dealer(&folder, &[]).unwrap();
    }
}

pub fn dealer_with(dir: &Path, adjust: impl FnOnce(&mut tacit_serve::DealerConfig)) -> SocketAddr {
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

pub fn pin(dir: &Path) -> ClientId {
    keys::dealer_pin(&dir.join("keys")).unwrap()
}

/// The dealer as `name` reaches it.
pub fn reached(dir: &Path, address: SocketAddr, name: &str) -> RemoteDealer {
    let identity = keys::load_client(&dir.join("keys"), name).unwrap();
    RemoteDealer::new(DealerConfig::new(&address.to_string(), pin(dir), identity)).unwrap()
}

pub fn resources(dir: &Path, address: SocketAddr, name: &str) -> ConnectionResources {
    ConnectionResources { dealer: Some(Arc::new(reached(dir, address, name))), ..ConnectionResources::default() }
}

pub fn close(values: &[f64], expected: &[f64]) {
    assert!(values.iter().zip(expected).all(|(g, w)| (g - w).abs() < 0.1), "{values:?} instead of {expected:?}");
}
