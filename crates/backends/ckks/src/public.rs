//! The public part: primes, slots of inputs and outputs, keys that are needed, costs.

use serde::{Deserialize, Serialize};
use serde_json::json;
use tacit_graph::{Interface, OutputMode};
use tacit_he::ckks::{Complex, KeyId, KeyKind, Parameters, ParametersSpec, SwitchKey};

use super::argmax;
use super::options::{NAME, Options};
use super::wrong;
use tacit_backend_api::seam::version;
use tacit_backend_api::{BackendError, Costs, Numerics, Result};

/// Version of the public part and of the protocol that follows from it.
pub(super) const VERSION: u32 = 9;
/// Largest distance of decrypted slots from a valid answer, as a share of the outputs' range: far above any
/// expected error.
const MAX_STRAY: f64 = 0.125;
/// Most keys that a network may ask for.
const MAX_KEYS: usize = 4096;
/// Most bytes of keys that a client makes and sends.
pub(super) const MAX_KEY_BYTES: u64 = 12 << 30;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Public {
    #[serde(deserialize_with = "tacit_foreign::text::deserialize_plain")]
    pub backend: String,
    pub version: u32,
    pub interface: Interface,
    pub options: Options,
    /// Name of the parameters, for display.
    #[serde(deserialize_with = "tacit_foreign::text::deserialize_plain")]
    pub set: String,
    pub parameters: ParametersSpec,
    pub input: Port,
    pub output: Port,
    pub keys: Vec<KeyRecord>,
    /// Outputs that the arg max compares; `None` if all outputs are revealed.
    pub compared: Option<u32>,
    /// Largest expected error of an output in real units, rounding included.
    pub error: f64,
    /// `error` as a share of the outputs' range.
    pub relative: f64,
    /// Largest expected distance of the network with polynomials from the float network, as a share of the
    /// outputs' range.
    pub approximation: f64,
    /// Whether no accepted input leaves a domain where the computation is right; otherwise errors were
    /// measured on some inputs.
    pub certain: bool,
    pub costs: Costs,
    pub steps: Vec<StepRecord>,
}

/// How a tensor lies in the ciphertext that carries it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Port {
    pub level: usize,
    /// Value of a slot of 1.
    pub unit: f64,
    pub slots: Vec<u32>,
    /// Slots after which they repeat.
    pub period: usize,
}

/// A step of the program, for display.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Name of the node.
    #[serde(deserialize_with = "tacit_foreign::text::deserialize_plain")]
    pub node: String,
    /// Kind of the step.
    #[serde(deserialize_with = "tacit_foreign::text::deserialize_plain")]
    pub step: String,
    /// Level of its result.
    pub level: usize,
    /// Whether a bootstrap brings the result to that level.
    pub bootstrapped: bool,
    /// Diagonals of a linear step.
    pub diagonals: usize,
    /// Distances of rotations of a linear step that have keys.
    pub rotations: Vec<i64>,
    /// Key switches of a linear step.
    pub switches: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeyRecord {
    #[serde(with = "Kind")]
    kind: KeyKind,
    level: u32,
    alpha: u32,
}

/// [`KeyKind`] in the form of the public part.
#[derive(Serialize, Deserialize)]
#[serde(remote = "KeyKind")]
enum Kind {
    Relinearise,
    Galois(u32),
    ToSparse,
    FromSparse,
    Zero,
    Master(u32),
}

impl KeyRecord {
    pub fn from_id(id: KeyId) -> Self {
        Self { kind: id.kind, level: id.level as u32, alpha: id.alpha as u32 }
    }

    pub fn id(self) -> KeyId {
        KeyId { kind: self.kind, level: self.level as usize, alpha: self.alpha as usize }
    }
}

impl Port {
    /// Whether slots can be those of such a tensor: it repeats, other slots are zero, and all slots are real.
    /// Slots that overflowed the modulus satisfy none of these.
    fn holds(&self, slots: &[Complex], stray: f64) -> bool {
        let mut tensor = vec![0.0; self.period];
        self.slots.iter().for_each(|&slot| tensor[slot as usize] = slots[slot as usize].re);
        let mut pairs = slots.chunks(self.period).flat_map(|copy| copy.iter().zip(&tensor));
        pairs.all(|(slot, expected)| (slot.re - expected).abs() <= stray && slot.im.abs() <= stray)
    }
}

fn refusal() -> BackendError {
    let what = "it lies outside of the range that this model's answers have, so the input left what its polynomials hold for. The owner \
                can recalibrate with inputs like this one, lower with a larger `-O margin`, or offer another back end (`cheetah`, \
                `dealt`); an input nearer to the calibration samples is answered";
    BackendError::Answer { what: what.into() }
}

impl Public {
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        postcard::to_stdvec(self).or_else(|e| wrong(e.to_string()))
    }

    /// Reads untrusted bytes and checks everything that sizes depend on.
    ///
    /// # Errors
    /// [`BackendError::Public`] for malformed bytes or another version.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        version::check(NAME, VERSION, bytes)?;
        let public: Self = match postcard::take_from_bytes(bytes) {
            Ok((public, [])) => public,
            Ok((_, tail)) => return wrong(format!("{} bytes left over", tail.len())),
            Err(e) => return wrong(e.to_string()),
        };
        public.interface.check()?;
        Ok(public)
    }

    /// # Errors
    /// [`BackendError::Public`] if the part does not fit its parameters.
    pub fn check(&self, parameters: &Parameters) -> Result<()> {
        let (n, levels) = (parameters.degree() / 2, parameters.levels());
        let is_best = self.interface.output_mode == OutputMode::Top1;
        if is_best != self.compared.is_some() {
            return wrong("an arg max is of outputs that are compared".into());
        }
        let outputs = self.compared.map_or(self.interface.output_len(), |n| argmax::period(n as usize));
        for (what, port, len) in [("input", &self.input, self.interface.input_len()), ("output", &self.output, outputs)]
        {
            let period = port.period;
            let fits = period.is_power_of_two() && (2..=n).contains(&period) && port.slots.len() == len;
            let inside = port.slots.iter().all(|slot| (*slot as usize) < period);
            let usual = port.unit.is_finite() && port.unit > 0.0 && (1..=levels).contains(&port.level);
            if !(fits && inside && usual) {
                return wrong(format!("the {what} does not fit its ciphertext"));
            }
        }
        let last = &self.output;
        let repeats = last.period == outputs && last.slots.iter().enumerate().all(|(i, &slot)| i == slot as usize);
        if is_best && !(repeats && last.level == 1) {
            return wrong("its outputs are no coefficients".into());
        }
        if self.keys.len() > MAX_KEYS {
            return wrong(format!("{} keys, at most {MAX_KEYS} are made", self.keys.len()));
        }
        let distinct: std::collections::BTreeSet<_> = self.keys.iter().map(|key| format!("{:?}", key.id())).collect();
        if distinct.len() < self.keys.len() {
            return wrong("it wants a key twice".into());
        }
        let special = parameters.special_primes().len();
        for key in self.keys.iter().map(|key| key.id()) {
            let is_known = match key.kind {
                KeyKind::Galois(element) | KeyKind::Master(element) => {
                    element % 2 == 1 && (3..2 * parameters.degree()).contains(&(element as usize))
                }
                KeyKind::ToSparse | KeyKind::FromSparse => parameters.spec().encapsulated,
                KeyKind::Relinearise | KeyKind::Zero => true,
            };
            if !is_known || !(1..=levels).contains(&key.level) || !(1..=special).contains(&key.alpha) {
                return wrong(format!("no key of its parameters is for {} at level {}", key.kind, key.level));
            }
            key.admit(parameters).or_else(|e| wrong(e.to_string()))?;
        }
        if ![self.error, self.relative, self.approximation].iter().all(|e| e.is_finite() && *e >= 0.0) {
            return wrong("its error is no number".into());
        }
        Ok(())
    }

    /// Rounds an output to a multiple of `error`, which is twice the error without rounding.
    pub fn round(&self, value: f64) -> f64 {
        // Adding 0 turns -0 into 0.
        if self.options.round && self.error > 0.0 && self.compared.is_none() {
            (value / self.error).round() * self.error + 0.0
        } else {
            value
        }
    }

    /// Decodes the answer from decrypted slots.
    ///
    /// # Errors
    /// [`BackendError::Answer`] for slots that no valid answer has.
    pub fn answer(&self, slots: &[Complex]) -> Result<Vec<f64>> {
        if !self.output.holds(slots, MAX_STRAY.max(8.0 * self.relative)) {
            return Err(refusal());
        }
        let Port { slots: places, unit, .. } = &self.output;
        let answer: Vec<f64> = places.iter().map(|&slot| self.round(slots[slot as usize].re * unit)).collect();
        self.check_answer(&answer)?;
        Ok(answer)
    }

    /// Checks that outputs lie in their range, up to the stated error. Outputs of a polynomial that left its
    /// domain usually do not.
    ///
    /// # Errors
    /// [`BackendError::Answer`] if one does not.
    pub fn check_answer(&self, answer: &[f64]) -> Result<()> {
        let max_magnitude = self.output.unit + self.stated_error();
        // False for NaN.
        if self.compared.is_some() || answer.iter().all(|v| v.abs() <= max_magnitude) { Ok(()) } else { Err(refusal()) }
    }

    /// Largest expected distance of an answer from the float network's.
    pub fn stated_error(&self) -> f64 {
        self.error + self.approximation * self.output.unit
    }

    /// Largest expected error of an answer; infinite for a class.
    pub fn error_bound(&self) -> f64 {
        if self.compared.is_some() { f64::INFINITY } else { self.error }
    }

    pub fn numerics(&self) -> Numerics {
        Numerics::Approx { relative: self.relative }
    }

    pub fn describe(&self) -> serde_json::Value {
        let boots = self.steps.iter().filter(|s| s.bootstrapped).count();
        json!({
            "interface": self.interface,
            "options": self.options,
            "parameters": { "set": self.set, "spec": self.parameters },
            "keys": self.keys.len(),
            "key_bytes": self.costs.setup.server.stored_bytes,
            "bootstraps": boots,
            "relative_error": self.relative,
            "approximation": self.approximation,
            "stated_error": self.stated_error(),
            "certain": self.certain,
            "output_range": self.output.unit,
            "steps": self.steps,
        })
    }
}

/// Bytes of all keys on the wire, each with its digest.
///
/// # Errors
/// [`BackendError::Public`] for more than [`MAX_KEY_BYTES`].
pub(super) fn key_bytes(context: &tacit_he::ckks::Context, keys: &[KeyRecord], digest: usize) -> Result<u64> {
    let total = keys.iter().map(|key| (SwitchKey::packed_bytes(context, key.id()) + digest) as u64).sum::<u64>();
    if total > MAX_KEY_BYTES {
        wrong(format!("{total} bytes of keys, at most {MAX_KEY_BYTES} are made"))
    } else {
        Ok(total)
    }
}
