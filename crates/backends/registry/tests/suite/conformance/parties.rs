//! Both parties of a test in one process, with one dealer.

use std::sync::Arc;

use tacit_arith::prg::Prg;
use tacit_backends::dealer::{Dealings, InProcessDealer};
use tacit_backends::seam::Dealer;
use tacit_backends::{
    Backend, ClientModel, ClientSide, ConnectionResources, Options, Registry, ServerModel, ServerSide,
};
use tacit_graph::Model;
use tacit_net::Channel;

/// A lowered model at both parties.
pub struct Models {
    pub server: Arc<dyn ServerModel>,
    pub client: Arc<dyn ClientModel>,
}

impl Models {
    pub fn lower(backend: &dyn Backend, model: &Model, options: &Options) -> Self {
        Self::open(backend, backend.lower(model, options).unwrap())
    }

    /// Opens at the client what a server has lowered.
    pub fn open(backend: &dyn Backend, server: Arc<dyn ServerModel>) -> Self {
        let client = backend.open(server.public_bytes()).unwrap();
        Self { server, client }
    }

    /// Connects the client, and runs its setup.
    pub fn set_up_client(&self, resources: &ConnectionResources, channel: &mut Channel) -> Box<dyn ClientSide> {
        let mut side = self.client.clone().connect(resources).unwrap();
        side.setup(channel).unwrap();
        side
    }

    /// Connects the server, and runs its setup.
    pub fn set_up_server(&self, resources: &ConnectionResources, channel: &mut Channel) -> Box<dyn ServerSide> {
        let mut side = self.server.clone().connect(resources).unwrap();
        side.setup(channel).unwrap();
        side
    }
}

/// One dealer, as client and server access it.
pub fn dealers() -> [InProcessDealer; 2] {
    let dealings = Arc::new(Dealings::new(Registry::standard(), Prg::from_os().unwrap(), 1));
    [1, 2].map(|party| InProcessDealer::new(Arc::clone(&dealings), [party; 32]))
}

/// The resources of client and server.
pub fn resources() -> [ConnectionResources; 2] {
    resources_with(dealers().map(|dealer| Arc::new(dealer) as Arc<dyn Dealer>))
}

pub fn resources_with(dealers: [Arc<dyn Dealer>; 2]) -> [ConnectionResources; 2] {
    dealers.map(|dealer| ConnectionResources { dealer: Some(dealer), ..ConnectionResources::default() })
}

/// Whether an answer is within the bound that the server declares.
pub fn is_near(server: &dyn ServerModel, answer: &[f64], reference: &[f64]) -> bool {
    let bound = server.error_bound(reference);
    answer.iter().zip(reference).all(|(got, expected)| (got - expected).abs() <= bound)
}
