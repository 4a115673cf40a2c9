//! `clear`: the server computes on the plain input, without protocol or privacy. It is the lower
//! bound for comparisons with other back ends, served only where allowed by name.
//!
//! Online the client sends its real input (`f32`), and the server answers with the model's real
//! outputs (`f64`). There is no setup and no offline phase.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tacit_graph::{Interface, Model, Watch, file};
use tacit_net::{Channel, Tag, TrafficModel};
use zeroize::Zeroizing;

use tacit_backend_api::seam::{ConnectionResources, digest, version};
use tacit_backend_api::{
    Backend, BackendError, ClientModel, ClientSide, Costs, LoweringReport, Material, Numerics, Options, PhaseCost,
    Plan, Preparation, ServerModel, ServerSide, Setup, Trust,
};

const INPUT: Tag = Tag::new(0x0501, "plain input");
const OUTPUT: Tag = Tag::new(0x0502, "plain output");

const VERSION: u32 = 3;
pub(crate) const NAME: &str = "clear";

/// The back end.
pub struct Clear;

/// The public part: inputs, outputs, and the amount of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Public {
    backend: String,
    version: u32,
    interface: Interface,
    macs: u64,
}

/// The public part and its encoding.
struct PublicPart {
    public: Public,
    bytes: Vec<u8>,
}

struct Server {
    public_part: PublicPart,
    model: Model,
}

struct Client {
    public_part: PublicPart,
}

impl Public {
    fn for_model(model: &Model) -> Self {
        Self { backend: NAME.into(), version: VERSION, interface: model.interface.clone(), macs: model.graph.macs() }
    }
}

impl PublicPart {
    fn new(public: Public) -> Result<Self, BackendError> {
        let bytes = postcard::to_stdvec(&public).map_err(|e| BackendError::Public { what: e.to_string() })?;
        Ok(Self { public, bytes })
    }

    /// Reads a public part, which is untrusted bytes.
    fn read(bytes: &[u8]) -> Result<Self, BackendError> {
        version::check(NAME, VERSION, bytes)?;
        let public: Public = match postcard::take_from_bytes(bytes) {
            Ok((public, [])) => public,
            Ok((_, rest)) => return Err(public_error(format!("{} bytes left over", rest.len()))),
            Err(e) => return Err(public_error(e.to_string())),
        };
        public.interface.check()?;
        Self::new(public)
    }
}

fn public_error(what: String) -> BackendError {
    BackendError::Public { what }
}

impl Backend for Clear {
    fn id(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "no privacy: the server computes on the plain input; a lower bound to compare with"
    }

    fn trust(&self) -> Trust {
        Trust::ServerSeesInput
    }

    fn lower_watched(&self, model: &Model, options: &Options, _: &Watch) -> Result<Arc<dyn ServerModel>, BackendError> {
        options.reader(NAME).end()?;
        Ok(Arc::new(Server { public_part: PublicPart::new(Public::for_model(model))?, model: model.clone() }))
    }

    fn load(&self, public: &[u8], private: &[u8]) -> Result<Arc<dyn ServerModel>, BackendError> {
        let public_part = PublicPart::read(public)?;
        let model = file::read(private).map_err(|e| BackendError::Private { what: e.to_string() })?;
        if Public::for_model(&model) != public_part.public {
            return Err(BackendError::Private { what: "it belongs to another public part".into() });
        }
        Ok(Arc::new(Server { public_part, model }))
    }

    fn open(&self, public: &[u8]) -> Result<Arc<dyn ClientModel>, BackendError> {
        Ok(Arc::new(Client { public_part: PublicPart::read(public)? }))
    }
}

/// Implements [`Plan`] for a party's model.
macro_rules! plan {
    ($party:ty) => {
        impl Plan for $party {
            fn interface(&self) -> &Interface {
                &self.public_part.public.interface
            }

            fn digest(&self) -> [u8; 32] {
                digest("tacit 2026-11 clear plan", &[&self.public_part.bytes])
            }

            fn costs(&self) -> Costs {
                let interface = self.interface();
                let mut traffic = TrafficModel::default();
                traffic.up(4 * interface.input_len());
                traffic.down(8 * interface.output_len());
                let mut online = PhaseCost::from(traffic);
                online.server.work.macs = self.public_part.public.macs;
                Costs { online, ..Costs::default() }
            }

            fn numerics(&self) -> Numerics {
                Numerics::Exact
            }

            fn error_bound(&self, _: &[f64]) -> f64 {
                0.0
            }

            fn preparation(&self) -> Preparation {
                Preparation::Nothing
            }

            fn setup(&self) -> Setup {
                Setup::Nothing
            }

            fn output_unit(&self) -> Option<f64> {
                None
            }

            fn describe(&self) -> serde_json::Value {
                json!({ "interface": self.interface(), "macs": self.public_part.public.macs })
            }
        }
    };
}

plan!(Server);
plan!(Client);

impl ServerModel for Server {
    fn public_bytes(&self) -> &[u8] {
        &self.public_part.bytes
    }

    fn private_bytes(&self) -> Result<Zeroizing<Vec<u8>>, BackendError> {
        Ok(Zeroizing::new(file::write(&self.model)?))
    }

    fn report(&self) -> Option<&dyn LoweringReport> {
        None
    }

    fn reference(&self, input: &[f32]) -> Result<Vec<f64>, BackendError> {
        Ok(self.model.run(input)?)
    }

    fn connect(self: Arc<Self>, _: &ConnectionResources) -> Result<Box<dyn ServerSide>, BackendError> {
        Ok(Box::new(ServerConnection(self)))
    }
}

impl ClientModel for Client {
    fn connect(self: Arc<Self>, _: &ConnectionResources) -> Result<Box<dyn ClientSide>, BackendError> {
        Ok(Box::new(ClientConnection(self)))
    }
}

struct ServerConnection(Arc<Server>);

struct ClientConnection(Arc<Client>);

/// The error of a setup or an offline phase.
const NO_PHASE: BackendError = BackendError::Misuse("the back end clear has nothing to set up or to prepare");

/// Reads material, which has no bytes.
fn read_no_material(bytes: &[u8]) -> Result<Material, BackendError> {
    match bytes {
        [] => Ok(Material::nothing()),
        _ => Err(BackendError::Material { what: format!("{} bytes for a back end that has none", bytes.len()) }),
    }
}

impl ServerSide for ServerConnection {
    fn setup(&mut self, _: &mut Channel) -> Result<(), BackendError> {
        Err(NO_PHASE)
    }

    fn offline(&mut self, _: &mut Channel) -> Result<Material, BackendError> {
        Err(NO_PHASE)
    }

    fn online(&mut self, channel: &mut Channel, _: Material) -> Result<(), BackendError> {
        let bytes = channel.recv(INPUT, 4 * self.0.interface().input_len())?;
        let (values, _) = bytes.as_chunks();
        let input: Vec<f32> = values.iter().map(|v| f32::from_le_bytes(*v)).collect();
        // A large network on a slow machine computes longer than clients wait for a silent server.
        let output = channel.while_alive(|| self.0.model.run(&input))??;
        channel.send(OUTPUT, &output.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>())?;
        Ok(channel.flush()?)
    }

    fn read_material(&self, bytes: &[u8]) -> Result<Material, BackendError> {
        read_no_material(bytes)
    }
}

impl ClientSide for ClientConnection {
    fn setup(&mut self, _: &mut Channel) -> Result<(), BackendError> {
        Err(NO_PHASE)
    }

    fn offline(&mut self, _: &mut Channel) -> Result<Material, BackendError> {
        Err(NO_PHASE)
    }

    fn online(&mut self, channel: &mut Channel, _: Material, input: &[f32]) -> Result<Vec<f64>, BackendError> {
        let interface = self.0.interface();
        interface.check_input(input)?;
        channel.send(INPUT, &input.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>())?;
        let bytes = channel.recv(OUTPUT, 8 * interface.output_len())?;
        let (values, _) = bytes.as_chunks();
        Ok(values.iter().map(|v| f64::from_le_bytes(*v)).collect())
    }

    fn read_material(&self, bytes: &[u8]) -> Result<Material, BackendError> {
        read_no_material(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tacit_graph::float::{FloatGraph, FloatOp};
    use tacit_graph::onnx::Network;
    use tacit_graph::{ImportOptions, import_network};
    use tacit_net::{NetError, tcp_pair};

    use super::*;

    /// A client that does not expect signs of life receives them as unexpected messages.
    #[test]
    fn a_computing_server_sends_signs_of_life() {
        const WIDTH: usize = 2048;
        let mut graph = FloatGraph::new("x", vec![WIDTH]).unwrap();
        for _ in 0..3 {
            let (weights, bias) = (vec![0.5 / WIDTH as f32; WIDTH * WIDTH], vec![0.0; WIDTH]);
            graph.output = graph.push("y", FloatOp::Dense { weights, bias }, &[graph.output], &[]).unwrap();
        }
        let model = import_network(Network::new("n", graph), &ImportOptions::default()).unwrap().model;
        let server = Clear.lower(&model, &Options::default()).unwrap();
        let client = Clear.open(server.public_bytes()).unwrap();
        let run = |patience: Duration| {
            let (mut client_channel, mut server_channel) = tcp_pair().unwrap();
            client_channel.set_patience(patience);
            server_channel.set_sign_of_life(Duration::ZERO);
            let server = server.clone();
            let serving = std::thread::spawn(move || {
                server
                    .connect(&ConnectionResources::default())
                    .unwrap()
                    .online(&mut server_channel, Material::nothing())
            });
            let mut side = client.clone().connect(&ConnectionResources::default()).unwrap();
            let answer = side.online(&mut client_channel, Material::nothing(), &vec![0.5; WIDTH]);
            drop(client_channel);
            (answer, serving.join().unwrap())
        };
        let (answer, served) = run(Duration::from_secs(60));
        served.unwrap();
        assert_eq!(answer.unwrap(), model.run(&vec![0.5; WIDTH]).unwrap());
        let (answer, _) = run(Duration::ZERO);
        assert!(matches!(answer, Err(BackendError::Net(NetError::UnexpectedTag { .. }))), "{answer:?}");
    }
}
