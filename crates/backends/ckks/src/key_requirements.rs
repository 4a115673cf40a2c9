//! Keys, costs and the public part of a frame with a way to compute rotations.

use std::collections::BTreeSet;

use tacit_graph::{Model, OutputMode};
use tacit_he::ckks::{Bootstrapper, Ciphertext, KeyId, KeyKind, SeededCiphertext, SwitchKey, merge_needs};
use tacit_net::TrafficModel;

use super::argmax::ArgMax;
use super::derive::SentKeys;
use super::layout::{self, Layout};
use super::levelled_program::{Frame, Part, part};
use super::options::{NAME, Options};
use super::program::{Step, VectorId};
use super::public::{KeyRecord, Port, Public, StepRecord, VERSION, key_bytes};
use super::rotation_method::RotationMethod;
use super::wire::{DIGEST, HELLO_BYTES, WELCOME_BYTES};
use tacit_backend_api::{Costs, PartyCost, PhaseCost, Result, Work};
use tacit_two_party::cheetah::{self, TrafficOf};

/// Decrypted outputs are taken to be within so many estimated deviations of the reference. If errors are
/// Gaussian and the estimate is a third of the truth, one output in a thousand is not.
const DEVIATIONS: f64 = 10.0;

/// The keys that a frame needs, and its costs.
pub(super) struct Draft<'a> {
    frame: &'a Frame,
    options: &'a Options,
    pub needs: Vec<KeyId>,
    pub steps: Vec<StepRecord>,
    pub work: Work,
    /// Bytes of encoded weights and bootstrap tables.
    pub weights: u64,
    /// Bytes of the matrices that weights are encoded from.
    matrices: u64,
    /// Most bytes that one matrix takes while it is encoded.
    encoding: u64,
    /// Most bytes that a step holds.
    most_held: u64,
}

/// Bytes of a server process without any model. Measured: 24 to 26 MB.
const PROGRAM_BYTES: u64 = 26 << 20;

/// Adds an eighth for gaps that the allocator cannot return to the system. Measured
/// (`scripts/server_memory.py`) for SqueezeNet with squares, 3.12 GB without gaps: 2.42 GB with one thread,
/// 3.10 with four, 3.11 with eight.
fn with_gaps(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 8)
}

impl<'a> Draft<'a> {
    pub fn new(frame: &'a Frame, options: &'a Options, bootstrapper: Option<&Bootstrapper>) -> Result<Self> {
        let weights = bootstrapper.map_or(0, |boot| boot.memory_bytes() as u64);
        let (needs, steps, work) = (Vec::new(), Vec::new(), Work::default());
        let mut draft = Self { frame, options, needs, steps, work, weights, matrices: 0, encoding: 0, most_held: 0 };
        for id in 0..frame.program.vectors.len() {
            draft.step(id, bootstrapper)?;
        }
        draft.needs.push(frame.zero_key());
        Ok(draft)
    }

    /// The keys that are sent, each once, and those that the server derives.
    pub fn sent(&self) -> Result<SentKeys> {
        let keys = merge_needs(&self.needs);
        if self.options.derive {
            SentKeys::with_derivation(&self.frame.context, keys)
        } else {
            Ok(SentKeys::without_derivation(keys))
        }
    }

    fn step(&mut self, id: VectorId, bootstrapper: Option<&Bootstrapper>) -> Result<()> {
        let (vector, place) = (&self.frame.program.vectors[id], self.frame.places[id]);
        let mut record = StepRecord {
            node: vector.name.clone(),
            step: vector.step.name().into(),
            level: place.level,
            bootstrapped: place.boots,
            diagonals: 0,
            rotations: vec![],
            switches: 0,
        };
        match &vector.step {
            Step::Input => {}
            Step::Linear { parts, .. } => {
                for (index, (source, matrix)) in parts.iter().enumerate() {
                    let [input_layout, output_layout] = [*source, id].map(|id| &self.frame.layouts[id]);
                    let moves = layout::moves(matrix, input_layout, output_layout);
                    self.matrices += matrix.memory_bytes() as u64;
                    // Complex numbers in all slots, twice if they are rotated.
                    let slots = (self.frame.context.degree() / 2) as u64;
                    self.encoding = self.encoding.max(2 * 16 * slots * moves.offsets.len() as u64);
                    let method = self.frame.rotation_method(self.options, id, index);
                    self.linear(
                        &moves.offsets,
                        input_layout.period.max(output_layout.period),
                        place.made_level + 1,
                        method,
                        &mut record,
                    )?;
                    self.folds(&moves.folds, place.made_level, &mut record);
                }
            }
            step => {
                self.products(&Self::relinearisations(step, place.made_level));
            }
        }
        if let (true, Some(boot)) = (place.boots, bootstrapper) {
            self.bootstrap(boot);
        }
        self.steps.push(record);
        Ok(())
    }

    /// Adds a bootstrap, whose diagonals are stored transformed.
    fn bootstrap(&mut self, boot: &Bootstrapper) {
        let parameters = self.frame.context.parameters();
        self.needs.extend(boot.keys());
        for plan in boot.plans() {
            let alpha = parameters.alpha(plan.level());
            let work = plan.work(alpha);
            self.note_held_limbs(plan.held_limbs(&self.frame.context, 0));
            self.work.key_switches += work.key_switches as u64;
            self.work.ntts += work.ntts as u64;
            self.work.macs += (work.products * parameters.degree()) as u64;
        }
        boot.switches().into_iter().for_each(|(level, count)| self.switches(level, count as u64));
    }

    /// Level and number of the relinearisations of a step whose result is at `result_level`.
    pub fn relinearisations(step: &Step, result_level: usize) -> Vec<(usize, u64)> {
        match step {
            Step::Input | Step::Linear { .. } => vec![],
            Step::Square { .. } | Step::Quadratic { .. } | Step::Product { .. } => vec![(result_level + 1, 1)],
            Step::Polynomial { polynomial, .. } => {
                let top_level = result_level + polynomial.depth();
                let counts = polynomial.relinearisations().into_iter().enumerate();
                counts.map(|(below, count)| (top_level - below, count as u64)).collect()
            }
        }
    }

    /// Adds a part of a linear step, whose diagonals repeat after `period` slots.
    fn linear(
        &mut self,
        offsets: &BTreeSet<i64>,
        period: usize,
        level: usize,
        method: RotationMethod,
        record: &mut StepRecord,
    ) -> Result<()> {
        record.diagonals += offsets.len();
        let context = &self.frame.context;
        let limbs = (level + context.parameters().alpha(level)) as u64;
        let n = context.degree() as u64;
        // Repeating diagonals are transformed in a smaller ring.
        self.work.ntts += limbs * offsets.len() as u64 * (2 * period as u64).min(n) / n;
        self.work.macs += 2 * limbs * n * offsets.len() as u64;
        if let Part::Transform(plan) = part(context, method, offsets, level)? {
            let rotations = plan.rotations();
            self.needs.extend(plan.keys(context));
            // Diagonals are 64-bit coefficients in a subring.
            self.weights += 16 * (period * offsets.len()) as u64;
            let switches = plan.switches();
            record.switches += switches;
            self.switches(level, switches as u64);
            self.note_held_limbs(plan.held_limbs(context, (2 * period).min(context.degree())));
            record.rotations.extend(rotations);
        } else {
            // The slots are complex numbers.
            self.weights += 8 * n;
        }
        Ok(())
    }

    fn folds(&mut self, folds: &[usize], level: usize, record: &mut StepRecord) {
        let context = &self.frame.context;
        let elements = folds.iter().map(|distance| context.rotation_element(*distance as i64));
        self.needs.extend(elements.map(|element| KeyId::for_level(context, KeyKind::Galois(element), level)));
        record.rotations.extend(folds.iter().map(|distance| *distance as i64));
        record.switches += folds.len();
        self.switches(level, folds.len() as u64);
    }

    /// The server's bytes while it computes for one client, with keys of `stored` bytes.
    pub fn memory(&self, stored: u64) -> u64 {
        stored + self.weights + self.most_held
    }

    /// The server's bytes while keys of `keys` bytes arrive or, before, while weights are encoded.
    fn setup_memory(&self, keys: u64) -> u64 {
        self.resident() + self.weights + self.encoding.max(keys)
    }

    /// Bytes of a server process that has loaded the network, and no keys.
    fn resident(&self) -> u64 {
        let parameters = self.frame.context.parameters();
        let primes = (parameters.primes().len() + parameters.special_primes().len()) as u64;
        // Twiddle factors for both directions, each with its quotient by the prime.
        let tables = 32 * self.frame.context.degree() as u64 * primes;
        PROGRAM_BYTES + self.matrices + tables
    }

    /// Adds products by level and number.
    fn products(&mut self, counts: &[(usize, u64)]) {
        for &(level, count) in counts {
            self.needs.push(KeyId::for_level(&self.frame.context, KeyKind::Relinearise, level));
            self.switches(level, count);
        }
        if let Some(level) = counts.iter().map(|(level, _)| *level).max() {
            let alpha = self.frame.context.parameters().alpha(level);
            // Each product may be a stored power. Two more are multiplied, and relinearised by one switch.
            let stored_powers = counts.iter().map(|(_, count)| *count as usize).sum::<usize>() + 2;
            self.note_held_limbs(2 * level * stored_powers + (level.div_ceil(alpha) + 4) * (level + alpha));
        }
    }

    fn note_held_limbs(&mut self, limbs: usize) {
        self.most_held = self.most_held.max(8 * (limbs * self.frame.context.degree()) as u64);
    }

    fn switches(&mut self, level: usize, count: u64) {
        let alpha = self.frame.context.parameters().alpha(level);
        self.work.key_switches += count;
        self.work.ntts += count * ((level.div_ceil(alpha) + 2) * (level + alpha)) as u64;
    }

    fn port(&self, id: VectorId) -> Port {
        let Layout { slots, period } = self.frame.layouts[id].clone();
        Port { level: self.frame.places[id].level, unit: self.frame.program.vectors[id].scale[0], slots, period }
    }

    /// Makes the public part for the keys `sent`.
    ///
    /// # Errors
    /// More bytes of keys than a client sends; outputs that cannot be compared.
    pub fn public(self, model: &Model, deviation: f64, approximation_error: f64, sent: &SentKeys) -> Result<Public> {
        let last = self.frame.program.vectors.len() - 1;
        let mut output = self.port(last);
        output.unit *= model.output_multiplier;
        // Round up to a power of two: the estimate depends on the weights.
        let before_rounding = (DEVIATIONS * deviation).log2().ceil().exp2();
        let relative = if self.options.round { 2.0 * before_rounding } else { before_rounding };
        let keys: Vec<KeyRecord> = sent.keys.iter().copied().map(KeyRecord::from_id).collect();
        let input = self.port(0);
        let compared = match model.interface.output_mode {
            OutputMode::Logits => None,
            OutputMode::Top1 => Some(model.graph.nodes[model.graph.output].elements() as u32),
        };
        let parameters = self.frame.context.parameters();
        let arg_max = compared.map(|n| ArgMax::new(n as usize, parameters)).transpose()?;
        let costs = self.costs(&keys, sent, input.level, output.level, arg_max.as_ref())?;
        Ok(Public {
            backend: NAME.into(),
            version: VERSION,
            interface: model.interface.clone(),
            options: self.options.clone(),
            set: self.frame.setting.name.clone(),
            parameters: self.frame.setting.parameters.clone(),
            compared,
            error: relative * output.unit,
            relative,
            approximation: approximation_error,
            certain: false,
            input,
            output,
            keys,
            costs,
            steps: self.steps,
        })
    }

    /// The input is at `level`, the output at level `last`.
    fn costs(
        &self,
        keys: &[KeyRecord],
        sent: &SentKeys,
        level: usize,
        last: usize,
        arg_max: Option<&ArgMax>,
    ) -> Result<Costs> {
        let context = &self.frame.context;
        let stored = key_bytes(context, keys, 0)?;
        let packed_bytes = |key: &KeyRecord| SwitchKey::packed_bytes(context, key.id());
        let largest = keys.iter().map(packed_bytes).max().unwrap_or(0) as u64;
        let secret = 8 * (context.degree() * (context.parameters().levels() + 1)) as u64;
        let mut traffic = TrafficModel::default();
        traffic.up(HELLO_BYTES);
        traffic.down(WELCOME_BYTES);
        keys.iter().for_each(|key| traffic.up(packed_bytes(key) + DIGEST));
        traffic.down(DIGEST);
        let arg_max_costs = arg_max.map(|arg_max| cheetah::costs(&arg_max.plan)).unwrap_or_default();
        arg_max.iter().for_each(|arg_max| TrafficOf::setup(&arg_max.plan, &mut traffic));
        let mut setup = PhaseCost {
            client: PartyCost {
                peak_memory_bytes: 4 * largest + 3 * secret,
                stored_bytes: secret,
                ..PartyCost::default()
            },
            server: PartyCost {
                work: Work { ntts: sent.transforms(context), ..Work::default() },
                peak_memory_bytes: with_gaps(self.setup_memory(stored + sent.derived_bytes(context) + 4 * largest)),
                stored_bytes: stored,
            },
            ..traffic.into()
        };
        let mut traffic = TrafficModel::default();
        traffic.up(SeededCiphertext::bytes_len(context, level));
        arg_max.iter().for_each(|arg_max| TrafficOf::offline(&arg_max.plan, &mut traffic));
        traffic.down(Ciphertext::bytes_len(context, last));
        arg_max.iter().for_each(|arg_max| TrafficOf::online(&arg_max.plan, &mut traffic));
        let memory = with_gaps(self.resident() + self.memory(sent.resident_bytes(context)));
        let mut online = PhaseCost {
            client: PartyCost {
                work: Work { ntts: 2 * level as u64 + 4, ..Work::default() },
                peak_memory_bytes: 32 * (context.degree() * (level + 2)) as u64,
                stored_bytes: 0,
            },
            server: PartyCost { work: self.work, peak_memory_bytes: memory, stored_bytes: 0 },
            ..traffic.into()
        };
        // The server's stored bytes are keys alone.
        setup.add_work(arg_max_costs.setup.client, without_stored_bytes(arg_max_costs.setup.server));
        for phase in [arg_max_costs.offline, arg_max_costs.online] {
            online.add_work(without_stored_bytes(phase.client), without_stored_bytes(phase.server));
        }
        Ok(Costs { setup, online, comparisons: arg_max_costs.comparisons, ..Costs::default() })
    }
}

fn without_stored_bytes(party: PartyCost) -> PartyCost {
    PartyCost { stored_bytes: 0, ..party }
}
