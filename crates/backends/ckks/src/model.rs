//! The back end behind the common interface ([`seam`]). The private part is the owner's model; the first
//! client's connection encodes the weights.

use std::sync::Arc;

use tacit_graph::float::FloatOp;
use tacit_graph::{Interface, Model, Watch, file};
use zeroize::Zeroizing;

use super::options::{NAME, Options};
use super::plan::{Plan, plan};
use super::public::Public;
use super::refusal::is_function;
use super::report::Report;
use super::settle::{AcceptedChoice, SettledModel, settle};
use super::{client, server};
use tacit_backend_api::seam::{self, ConnectionResources, digest};
use tacit_backend_api::{
    Backend, BackendError, Benchmarks, ClientModel, ClientSide, Costs, DryRun, LoweringReport, Numerics, Preparation,
    Result, ServerModel, ServerSide, Setup, Strain, Support, Trust,
};

/// The back end `ckks`.
pub struct Ckks;

struct Server {
    bytes: Vec<u8>,
    model: Model,
    shared: Arc<server::Shared>,
    report: Option<Report>,
}

struct Client {
    shared: Arc<client::Shared>,
}

pub(super) fn plan_digest(public: &[u8]) -> [u8; 32] {
    digest("tacit 2026-11 ckks plan", &[public])
}

impl Server {
    fn new(model: &Model, plan: Plan) -> Result<Self> {
        let bytes = plan.public.to_bytes()?;
        let shared = Arc::new(server::Shared::new(plan, plan_digest(&bytes))?);
        Ok(Self { bytes, model: model.clone(), shared, report: None })
    }

    fn plan(&self) -> &Plan {
        &self.shared.plan
    }
}

impl Backend for Ckks {
    fn id(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "one ciphertext up, one down: the server computes on encrypted slots with keys that were sent once; approximate"
    }

    fn trust(&self) -> Trust {
        Trust::TwoParty
    }

    fn keeps_keys(&self) -> bool {
        true
    }

    fn support(&self, op: &FloatOp) -> Support {
        match op {
            FloatOp::MaxPool(_) => Support::Missing,
            op if is_function(op) => Support::Approximate,
            _ => Support::Full,
        }
    }

    fn benchmarks(&self) -> Benchmarks {
        Benchmarks::SQUARING
    }

    fn lower_watched(&self, model: &Model, text: &seam::Options, watch: &Watch) -> Result<Arc<dyn ServerModel>> {
        Options::read(text)?;
        model.check()?;
        let SettledModel { model: accepting, choice: AcceptedChoice { plan, judged, .. } } =
            settle(model, text, watch)?;
        let report = Report::new(model, &accepting, &plan, judged);
        Ok(Arc::new(Server { report: Some(report), ..Server::new(&accepting, plan)? }))
    }

    fn load(&self, public: &[u8], private: &[u8]) -> Result<Arc<dyn ServerModel>> {
        let stated = Public::read(public)?;
        let model = file::read(private).map_err(|e| BackendError::Private { what: e.to_string() })?;
        let plan = plan(&model, &stated.options, stated.approximation, &Watch::default())?;
        let server = Server::new(&model, plan)?;
        if server.bytes != public {
            return Err(BackendError::Private {
                what: "it belongs to another public part: lower the model again".into(),
            });
        }
        Ok(Arc::new(server))
    }

    fn open(&self, public: &[u8]) -> Result<Arc<dyn ClientModel>> {
        let shared = client::Shared::new(Public::read(public)?, plan_digest(public))?;
        Ok(Arc::new(Client { shared: Arc::new(shared) }))
    }
}

macro_rules! plan_of {
    ($party:ty, |$self:ident| $public:expr) => {
        impl seam::Plan for $party {
            fn interface(&$self) -> &Interface {
                &$public.interface
            }

            fn digest(&self) -> [u8; 32] {
                self.shared.digest
            }

            fn costs(&$self) -> Costs {
                $public.costs
            }

            fn numerics(&$self) -> Numerics {
                $public.numerics()
            }

            fn error_bound(&$self, _: &[f64]) -> f64 {
                $public.error_bound()
            }

            fn check_answer(&$self, answer: &[f64]) -> Result<()> {
                $public.check_answer(answer)
            }

            fn preparation(&self) -> Preparation {
                Preparation::Nothing
            }

            fn setup(&self) -> Setup {
                Setup::BeforeOnline
            }

            fn output_unit(&self) -> Option<f64> {
                None
            }

            fn describe(&$self) -> serde_json::Value {
                $public.describe()
            }
        }
    };
}

plan_of!(Server, |self| self.shared.plan.public);
plan_of!(Client, |self| self.shared.public);

impl ServerModel for Server {
    fn public_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn private_bytes(&self) -> Result<Zeroizing<Vec<u8>>> {
        Ok(Zeroizing::new(file::write(&self.model)?))
    }

    fn report(&self) -> Option<&dyn LoweringReport> {
        self.report.as_ref().map(|report| report as &dyn LoweringReport)
    }

    fn reference(&self, input: &[f32]) -> Result<Vec<f64>> {
        self.model.interface.check_input(input)?;
        Ok(self.plan().reference(input))
    }

    fn simulate(&self, input: &[f32]) -> Result<Vec<f64>> {
        self.model.interface.check_input(input)?;
        Ok(self.plan().simulate(input))
    }

    fn strain(&self, input: &[f32]) -> Result<Vec<Strain>> {
        self.model.interface.check_input(input)?;
        Ok(self.plan().strain(input))
    }

    fn remedy(&self) -> String {
        format!("with more room than `-O margin={}`, 16 at most", self.plan().options.margin)
    }

    fn rehearse(&self, inputs: &[&[f32]]) -> Result<Vec<DryRun>> {
        inputs.iter().try_for_each(|input| self.model.interface.check_input(input))?;
        Ok(self.plan().rehearse(inputs))
    }

    fn free_idle_memory(&self) {
        self.shared.free_idle_memory();
    }

    fn connect(self: Arc<Self>, resources: &ConnectionResources) -> Result<Box<dyn ServerSide>> {
        Ok(Box::new(server::ServerConnection::new(self.shared.clone(), resources, seam::randomness()?)))
    }
}

impl ClientModel for Client {
    fn waives(&self) -> Option<(&'static str, &'static str)> {
        let Public { options, compared, .. } = &self.shared.public;
        (!options.round && compared.is_none()).then_some(("round", "false"))
    }

    fn connect(self: Arc<Self>, resources: &ConnectionResources) -> Result<Box<dyn ClientSide>> {
        Ok(Box::new(client::ClientConnection::new(self.shared.clone(), resources, seam::randomness()?)))
    }
}
