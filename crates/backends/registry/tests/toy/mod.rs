//! A back end for tests. It hides **nothing**: the client adds a pad to the input, and the server
//! subtracts it and runs the float network. If both halves of the material belong together, answers are
//! those of the float network, rounded to `f32`.
//!
//! Options: `preparation=two-party` (the material is the pad, and the setup comes before it) or
//! `nothing` (the pad is fixed, and the setup comes before the first answer).
use serde::{Deserialize, Serialize};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use tacit_backends::seam::digest;
use tacit_backends::*;
use tacit_graph::{Interface, Model, Watch, file};
use tacit_net::{Channel, Phase, Tag, TrafficModel};
use zeroize::Zeroizing;

const KEY: Tag = Tag::new(0xf100, "toy key");
const PAD: Tag = Tag::new(0xf101, "toy pad");
const INPUT: Tag = Tag::new(0xf102, "toy input");
const OUTPUT: Tag = Tag::new(0xf103, "toy output");

/// First value of an input that makes the server panic, as a bug would.
pub const PANIC: f32 = 6666.0;
/// Twice the relative error of a rounding to `f32`.
const RELATIVE: f64 = 1.0 / (1 << 23) as f64;
/// The pad of inputs without an offline phase.
const FIXED: u64 = 0x5a5a_5a5a;

/// The back end, with what tests vary.
#[derive(Clone)]
pub struct Toy {
    /// Name of the back end.
    pub id: &'static str,
    /// The parties that it declares its users to trust.
    pub trust: Trust,
    /// A part of the plan's digest, so that tests can make plans differ.
    pub plan: u8,
}

impl Default for Toy {
    fn default() -> Self {
        Self { id: "toy", trust: Trust::TwoParty, plan: 0 }
    }
}

#[derive(Serialize, Deserialize)]
struct Public {
    kind: String,
    model_id: [u8; 16],
    interface: Interface,
    preparation: Preparation,
}

/// A lowered model at either party.
struct Lowered {
    public: Public,
    bytes: Vec<u8>,
    plan: u8,
    /// The float network, at the server.
    model: Option<Model>,
}

fn public_error(what: impl ToString) -> BackendError {
    BackendError::Public { what: what.to_string() }
}

impl Toy {
    /// Reads a public part; `model` is the server's.
    fn read_lowered(&self, bytes: &[u8], model: Option<Model>) -> Result<Arc<Lowered>, BackendError> {
        let (public, rest) = postcard::take_from_bytes::<Public>(bytes).map_err(public_error)?;
        if !rest.is_empty() || public.kind != "toy" {
            return Err(public_error("it is no toy's, or bytes are left over"));
        }
        public.interface.check()?;
        if public.preparation == Preparation::Dealt {
            return Err(public_error("nobody deals for the toy"));
        }
        Ok(Arc::new(Lowered { public, bytes: bytes.to_vec(), plan: self.plan, model }))
    }
}

impl Backend for Toy {
    fn id(&self) -> &'static str {
        self.id
    }
    fn about(&self) -> &'static str {
        "hides nothing, for tests"
    }
    fn trust(&self) -> Trust {
        self.trust
    }
    fn lower_watched(&self, model: &Model, options: &Options, _: &Watch) -> Result<Arc<dyn ServerModel>, BackendError> {
        let mut reader = options.reader(self.id);
        let preparation = match reader.get::<String>("preparation")?.as_deref() {
            None | Some("two-party") => Preparation::TwoParty,
            Some("nothing") => Preparation::Nothing,
            Some(text) => {
                let what = format!("`{text}` is neither `two-party` nor `nothing`");
                return Err(BackendError::Option { backend: self.id, key: "preparation".into(), what });
            }
        };
        reader.end()?;
        let public =
            Public { kind: "toy".into(), model_id: model.model_id, interface: model.interface.clone(), preparation };
        Ok(self.read_lowered(&postcard::to_stdvec(&public).map_err(public_error)?, Some(model.clone()))?)
    }
    fn load(&self, public: &[u8], private: &[u8]) -> Result<Arc<dyn ServerModel>, BackendError> {
        let model = file::read(private).map_err(|e| BackendError::Private { what: e.to_string() })?;
        Ok(self.read_lowered(public, Some(model))?)
    }
    fn open(&self, public: &[u8]) -> Result<Arc<dyn ClientModel>, BackendError> {
        Ok(self.read_lowered(public, None)?)
    }
}

impl Plan for Lowered {
    fn interface(&self) -> &Interface {
        &self.public.interface
    }
    fn digest(&self) -> [u8; 32] {
        digest("tacit toy plan", &[&self.bytes, &[self.plan]])
    }
    fn costs(&self) -> Costs {
        let party_cost = |bytes| PartyCost { stored_bytes: bytes, ..PartyCost::default() };
        let phase_cost = |up: usize, down: &[usize], bytes| {
            let mut traffic = TrafficModel::default();
            traffic.up(up);
            down.iter().for_each(|down| traffic.down(*down));
            PhaseCost { client: party_cost(bytes), server: party_cost(bytes), ..traffic.into() }
        };
        let offline = match self.preparation() {
            Preparation::Nothing => PhaseCost::default(),
            _ => phase_cost(8, &[], Pad::BYTES as u64),
        };
        let (inputs, outputs) = (self.interface().input_len(), self.interface().output_len());
        Costs {
            setup: phase_cost(8, &[8], 0),
            offline,
            online: phase_cost(8 * inputs, &[8 * outputs], 0),
            ..Costs::default()
        }
    }
    fn numerics(&self) -> Numerics {
        Numerics::Approx { relative: RELATIVE }
    }
    fn error_bound(&self, reference: &[f64]) -> f64 {
        RELATIVE * tacit_floats::largest_magnitude(reference.iter().copied())
    }
    fn preparation(&self) -> Preparation {
        self.public.preparation
    }
    fn setup(&self) -> Setup {
        match self.preparation() {
            Preparation::Nothing => Setup::BeforeOnline,
            _ => Setup::BeforeOffline,
        }
    }
    fn output_unit(&self) -> Option<f64> {
        None
    }
    fn describe(&self) -> serde_json::Value {
        serde_json::json!({ "interface": self.interface(), "preparation": self.preparation() })
    }
}

impl ServerModel for Lowered {
    fn public_bytes(&self) -> &[u8] {
        &self.bytes
    }
    fn private_bytes(&self) -> Result<Zeroizing<Vec<u8>>, BackendError> {
        Ok(Zeroizing::new(file::write(self.model()?)?))
    }
    fn report(&self) -> Option<&dyn LoweringReport> {
        None
    }
    fn reference(&self, input: &[f32]) -> Result<Vec<f64>, BackendError> {
        Ok(self.model()?.run(input)?)
    }
    fn connect(self: Arc<Self>, _: &ConnectionResources) -> Result<Box<dyn ServerSide>, BackendError> {
        Ok(Box::new(Side { model: self, is_set_up: false }))
    }
}

impl Lowered {
    /// The float network, which only the server has.
    fn model(&self) -> Result<&Model, BackendError> {
        self.model.as_ref().ok_or(BackendError::Misuse("the client has no private part"))
    }
}

impl ClientModel for Lowered {
    fn connect(self: Arc<Self>, _: &ConnectionResources) -> Result<Box<dyn ClientSide>, BackendError> {
        Ok(Box::new(Side { model: self, is_set_up: false }))
    }
}

/// One party's half of a material: the party's number, and the pad.
struct Pad(u8, u64);

impl Pad {
    const BYTES: usize = 9;
    const CLIENT: u8 = 1;
    const SERVER: u8 = 2;

    fn read(party: u8, bytes: &[u8]) -> Result<Material, BackendError> {
        match bytes.split_first() {
            Some((&first, rest)) if first == party && rest.len() == 8 => Ok(Material::new(Self(party, words(rest)[0]))),
            _ => Err(BackendError::Material { what: format!("{} bytes, no half of this party", bytes.len()) }),
        }
    }

    /// Takes the pad out of the material, for its one use.
    fn spend(material: Material, party: u8, preparation: Preparation) -> Result<u64, BackendError> {
        if preparation == Preparation::Nothing {
            return Ok(FIXED);
        }
        let Self(owner, pad) = material.take()?;
        if owner == party { Ok(pad) } else { Err(BackendError::Misuse("this is the other party's half")) }
    }
}

impl MaterialPart for Pad {
    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new([&[self.0][..], &self.1.to_le_bytes()].concat())
    }
}

/// One connection's state, at either party.
struct Side {
    model: Arc<Lowered>,
    is_set_up: bool,
}

fn words(bytes: &[u8]) -> Vec<u64> {
    let word = |c: &[u8]| u64::from_le_bytes(c.try_into().expect("chunks of 8"));
    bytes.chunks_exact(8).map(word).collect()
}

fn send(channel: &mut Channel, tag: Tag, words: impl Iterator<Item = u64>) -> Result<(), BackendError> {
    Ok(channel.send(tag, &words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>())?)
}

impl Side {
    /// Runs the setup, which is the same at both parties.
    fn exchange_keys(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        assert_eq!(channel.phase(), Phase::Setup);
        send(channel, KEY, [7].into_iter())?;
        channel.recv(KEY, 8)?;
        self.is_set_up = true;
        Ok(())
    }

    fn check_setup(&self, required: Setup) -> Result<(), BackendError> {
        let is_ready = self.is_set_up || self.model.setup() != required;
        if is_ready { Ok(()) } else { Err(BackendError::Misuse("the setup comes first")) }
    }
}

impl ServerSide for Side {
    fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        self.exchange_keys(channel)
    }
    fn offline(&mut self, channel: &mut Channel) -> Result<Material, BackendError> {
        self.check_setup(Setup::BeforeOffline)?;
        assert_eq!(channel.phase(), Phase::Offline);
        Ok(Material::new(Pad(Pad::SERVER, words(&channel.recv(PAD, 8)?)[0])))
    }
    fn online(&mut self, channel: &mut Channel, material: Material) -> Result<(), BackendError> {
        self.check_setup(Setup::BeforeOnline)?;
        let pad = Pad::spend(material, Pad::SERVER, self.model.preparation())?;
        let padded = words(&channel.recv(INPUT, 8 * self.model.interface().input_len())?);
        let input: Vec<f32> = padded.iter().map(|w| f32::from_bits(w.wrapping_sub(pad) as u32)).collect();
        assert!(input[0].to_bits() != PANIC.to_bits(), "the toy server panics on purpose");
        let output = self.model.model()?.run(&input)?;
        send(channel, OUTPUT, output.iter().map(|&v| u64::from((v as f32).to_bits())))
    }
    fn read_material(&self, bytes: &[u8]) -> Result<Material, BackendError> {
        Pad::read(Pad::SERVER, bytes)
    }
}

impl ClientSide for Side {
    fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        self.exchange_keys(channel)
    }
    fn offline(&mut self, channel: &mut Channel) -> Result<Material, BackendError> {
        self.check_setup(Setup::BeforeOffline)?;
        // Random, though it protects nothing: halves of different materials must not fit by chance.
        let pad = RandomState::new().build_hasher().finish();
        send(channel, PAD, [pad].into_iter())?;
        Ok(Material::new(Pad(Pad::CLIENT, pad)))
    }
    fn online(&mut self, channel: &mut Channel, material: Material, input: &[f32]) -> Result<Vec<f64>, BackendError> {
        self.model.interface().check_input(input)?;
        self.check_setup(Setup::BeforeOnline)?;
        let pad = Pad::spend(material, Pad::CLIENT, self.model.preparation())?;
        send(channel, INPUT, input.iter().map(|x| u64::from(x.to_bits()).wrapping_add(pad)))?;
        let output = channel.recv(OUTPUT, 8 * self.model.interface().output_len())?;
        Ok(words(&output).into_iter().map(|w| f64::from(f32::from_bits(w as u32))).collect())
    }
    fn read_material(&self, bytes: &[u8]) -> Result<Material, BackendError> {
        Pad::read(Pad::CLIENT, bytes)
    }
}
