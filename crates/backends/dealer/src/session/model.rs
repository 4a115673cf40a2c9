//! Implements the seam: a float model lowered to a ring and compiled to a plan.
//!
//! The public part is `postcard((name, version, Options, stated digests))`, followed by that of the
//! ring level. The private part is a secret of 32 bytes, from which the keys of `A` are derived,
//! followed by that of the ring level. The dealer's part is the keys of `A`, 16 bytes for each
//! masked layer.

use std::sync::Arc;

use tacit_graph::{Model, Watch};
use tacit_mpc::Role;
use zeroize::Zeroizing;

use super::compiled::{Client, Dealing, Server, read_public};
use super::connection::Connection;
use super::correlation::{ClientPhases, Correlation, ServerPhases};
use super::masked_weights;
use super::plan::{DealerOptions, Plan};
use super::source::Sink;
use tacit_arith::prg::Seed;
#[cfg(doc)]
use tacit_backend_api::Backend;
use tacit_backend_api::seam::{self, ConnectionResources, DealerModel, Order};
use tacit_backend_api::{BackendError, ClientModel, ClientSide, LoweringReport, ServerModel, ServerSide, Strain};
use tacit_ring::{self, RingGraph, public};

/// Lowers a model. As [`Backend::lower_watched`].
pub(crate) fn lower<C: ServerPhases>(
    model: &Model,
    text: &seam::Options,
    watch: &Watch,
) -> Result<Arc<dyn ServerModel>, BackendError> {
    let (options, ring_options) = C::Options::parse(text)?;
    let target = tacit_ring::Target {
        price: &|graph: &RingGraph, dropped| C::price(graph, &options.with_relu_drop(dropped)),
        check: &|graph: &RingGraph, dropped| {
            Plan::<C>::compile(graph.clone(), options.with_relu_drop(dropped)).map(drop)
        },
    };
    let lowered = tacit_ring::lower_for(model, &ring_options, target, watch);
    let lowered = lowered.map_err(|error| tacit_ring::of_backend(error, C::NAME))?;
    let mut secret = Zeroizing::new([0; 32]);
    seam::randomness()?.fill_bytes(&mut *secret);
    let plan = Plan::<C>::compile(lowered.graph, options.with_relu_drop(lowered.relu_drop))?;
    let mut server = Server::new(plan, lowered.weights, secret, Some(lowered.report))?;
    let bound = seam::Plan::error_bound(&server, &[]);
    server.report.iter_mut().for_each(|report| report.state_bound(bound));
    Ok(Arc::new(server))
}

/// Loads both parts of a lowered model. As [`Backend::load`].
pub(crate) fn load<C: ServerPhases>(public: &[u8], private: &[u8]) -> Result<Arc<dyn ServerModel>, BackendError> {
    let (plan, _) = read_public::<C>(public)?;
    let (secret, weights) = masked_weights::read_private(&plan, private)?;
    let server = Server::new(plan, weights, secret, None)?;
    if *server.compiled.public != *public {
        return Err(BackendError::Private { what: "it belongs to another public part".into() });
    }
    Ok(Arc::new(server))
}

/// Opens the public part of a lowered model. As [`Backend::open`].
pub(crate) fn open<C: ClientPhases>(public: &[u8]) -> Result<Arc<dyn ClientModel>, BackendError> {
    Ok(Arc::new(Client::<C>::read(public)?))
}

/// Opens a model at the dealer. As [`Backend::open_dealer`].
pub(crate) fn open_dealer<C: Correlation>(public: &[u8], part: &[u8]) -> Result<Arc<dyn DealerModel>, BackendError> {
    Ok(Arc::new(Dealing::<C>::read(public, part)?))
}

/// Implements [`Backend`] for a kind of correlation, with one line for users.
macro_rules! dealer_backend {
    ($kind:ty, $about:literal) => {
        const _: () = {
            use std::sync::Arc;

            use tacit_backend_api::seam::DealerModel;
            use tacit_backend_api::{BackendError, ClientModel, Options, ServerModel, Support, Trust};
            use tacit_graph::float::FloatOp;
            use tacit_graph::{Model, Watch};
            use $crate::session::model;

            impl tacit_backend_api::Backend for $kind {
                fn id(&self) -> &'static str {
                    <Self as $crate::session::Scheme>::NAME
                }

                fn about(&self) -> &'static str {
                    $about
                }

                fn trust(&self) -> Trust {
                    Trust::Dealer
                }

                fn support(&self, op: &FloatOp) -> Support {
                    tacit_ring::support(op, true)
                }

                fn lower_watched(
                    &self,
                    float_model: &Model,
                    text: &Options,
                    watch: &Watch,
                ) -> Result<Arc<dyn ServerModel>, BackendError> {
                    model::lower::<Self>(float_model, text, watch)
                }

                fn load(&self, public: &[u8], private: &[u8]) -> Result<Arc<dyn ServerModel>, BackendError> {
                    model::load::<Self>(public, private)
                }

                fn open(&self, public: &[u8]) -> Result<Arc<dyn ClientModel>, BackendError> {
                    model::open::<Self>(public)
                }

                fn open_dealer(&self, public: &[u8], part: &[u8]) -> Result<Arc<dyn DealerModel>, BackendError> {
                    model::open_dealer::<Self>(public, part)
                }
            }
        };
    };
}

pub(crate) use dealer_backend;

tacit_ring::seam_plan!(@[C: Correlation] Server<C>, Dealt, |self| Some(&self.private.weights));
tacit_ring::seam_plan!(@[C: Correlation] Client<C>, Dealt, |self| None);

impl<C: ServerPhases> ServerModel for Server<C> {
    fn public_bytes(&self) -> &[u8] {
        &self.compiled.public
    }

    fn private_bytes(&self) -> Result<Zeroizing<Vec<u8>>, BackendError> {
        Ok(masked_weights::private_bytes(&self.private.secret, &self.private.weights))
    }

    fn report(&self) -> Option<&dyn LoweringReport> {
        self.report.as_ref().map(|report| report as &dyn LoweringReport)
    }

    fn reference(&self, input: &[f32]) -> Result<Vec<f64>, BackendError> {
        public::reference(self.compiled.plan.graph(), &self.private.weights, input)
    }

    fn strain(&self, input: &[f32]) -> Result<Vec<Strain>, BackendError> {
        public::strain(self.compiled.plan.graph(), &self.private.weights, input)
    }

    fn order(&self) -> Option<Order<'_>> {
        Some(Order {
            backend: C::NAME,
            digest: self.compiled.single_plan.binding(),
            batch: self.compiled.batch() as u32,
            public: &self.compiled.public,
            part: &self.private.dealer_part,
            server_bytes: C::half_bytes(&self.compiled.plan, Role::Server).dealt_len(),
        })
    }

    fn spooled_bytes(&self) -> Option<u64> {
        Some(C::half_bytes(&self.compiled.plan, Role::Server).stored_len())
    }

    fn batched(&self, batch: usize) -> Result<Arc<dyn ServerModel>, BackendError> {
        Ok(Arc::new(self.for_batch(batch)?))
    }

    fn connect(self: Arc<Self>, resources: &ConnectionResources) -> Result<Box<dyn ServerSide>, BackendError> {
        Ok(Box::new(Connection::new(self, resources, seam::randomness()?)))
    }
}

impl<C: ClientPhases> ClientModel for Client<C> {
    fn batched(&self, batch: usize) -> Result<Arc<dyn ClientModel>, BackendError> {
        Ok(Arc::new(self.for_batch(batch)?))
    }

    fn spooled_bytes(&self) -> Option<u64> {
        C::CLIENT_SPOOLS.then(|| C::half_bytes(&self.compiled.plan, Role::Client).stored_len())
    }

    fn connect(self: Arc<Self>, resources: &ConnectionResources) -> Result<Box<dyn ClientSide>, BackendError> {
        Ok(Box::new(Connection::new(self, resources, seam::randomness()?)))
    }
}

impl<C: Correlation> DealerModel for Dealing<C> {
    fn digest(&self) -> [u8; 32] {
        self.compiled.digest()
    }

    fn batched(&self, batch: usize) -> Result<Arc<dyn DealerModel>, BackendError> {
        Ok(Arc::new(self.for_batch(batch)?))
    }

    fn masks(&self) -> Vec<[u8; 32]> {
        self.keys.iter().map(masked_weights::fingerprint).collect()
    }

    fn client_bytes(&self) -> u64 {
        C::half_bytes(&self.compiled.plan, Role::Client).dealt_len()
    }

    fn client_memory(&self) -> u64 {
        C::client_dealing_memory(&self.compiled.plan)
    }

    fn client_half(&self, dealing: &Seed, sink: &mut Sink<'_>) -> Result<(), BackendError> {
        C::deal(Role::Client, &self.compiled.plan, &self.keys, dealing, sink)
    }

    fn server_bytes(&self) -> u64 {
        C::half_bytes(&self.compiled.plan, Role::Server).dealt_len()
    }

    fn server_half(&self, dealing: &Seed, sink: &mut Sink<'_>) -> Result<(), BackendError> {
        C::deal(Role::Server, &self.compiled.plan, &self.keys, dealing, sink)
    }
}
