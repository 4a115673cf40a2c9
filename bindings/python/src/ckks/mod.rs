//! RNS-CKKS for Python: contexts, keys, ciphertexts and their operations. Complex numbers pass
//! between Python and Rust as pairs of floats.

mod evaluate;
mod plans;

pub use evaluate::{CkksCiphertext, CkksKeys};
pub use plans::{CkksBootstrapper, CkksPolynomial, CkksTransform};

use std::sync::Arc;

use numpy::{PyArray1, PyReadonlyArray1, ToPyArray};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::json;
use tacit_arith::prg::{Prg, SplitPrg};
use tacit_he::HeError;
use tacit_he::ckks::{
    Complex, Context, Encoder, Estimate, KeyId, KeyKind, KeySet, NamedSet, Parameters, Received, SecretKey,
    fresh_deviation, relinearisation_needs,
};
use zeroize::Zeroizing;

use crate::error::{TacitError, to_python};
use crate::interrupt::brief;

/// Kind, Galois element (0 for kinds without one), level and special primes of a key.
type Key = (String, u32, usize, usize);

const RELINEARISE: &str = "relinearise";
const GALOIS: &str = "galois";
const TO_SPARSE: &str = "to-sparse";
const FROM_SPARSE: &str = "from-sparse";

fn key(id: KeyId) -> Key {
    let (kind, element) = match id.kind {
        KeyKind::Relinearise => (RELINEARISE, 0),
        KeyKind::Galois(element) => (GALOIS, element),
        KeyKind::ToSparse => (TO_SPARSE, 0),
        KeyKind::FromSparse => (FROM_SPARSE, 0),
        KeyKind::Master(_) | KeyKind::Zero => unreachable!("no circuit of this module needs one"),
    };
    (kind.to_owned(), element, id.level, id.alpha)
}

/// Returns the id of the key that `key` describes, if it can exist with these parameters.
fn key_id(context: &Context, key: &Key) -> PyResult<KeyId> {
    let (kind, element, level, alpha) = key;
    let kind = match kind.as_str() {
        RELINEARISE => KeyKind::Relinearise,
        GALOIS if element % 2 == 1 && (*element as usize) < 2 * context.degree() => KeyKind::Galois(*element),
        TO_SPARSE => KeyKind::ToSparse,
        FROM_SPARSE => KeyKind::FromSparse,
        _ => return Err(TacitError::new_err(format!("there is no key of kind `{kind}` for element {element}"))),
    };
    check_level(context, *level)?;
    let max_primes = context.parameters().special_primes().len();
    if !(1..=max_primes).contains(alpha) {
        return Err(TacitError::new_err(format!(
            "a key with {alpha} special primes: from 1 to {max_primes} are there"
        )));
    }
    Ok(KeyId { kind, level: *level, alpha: *alpha })
}

fn check_level(context: &Context, level: usize) -> PyResult<()> {
    let max_level = context.parameters().levels();
    if (1..=max_level).contains(&level) {
        return Ok(());
    }
    Err(TacitError::new_err(format!("level {level}: these parameters have 1 to {max_level}")))
}

fn check_same(kind: &str, expected: &Context, actual: &Context) -> PyResult<()> {
    if std::ptr::eq(expected, actual) || expected.parameters() == actual.parameters() {
        return Ok(());
    }
    Err(TacitError::new_err(format!("{kind} belongs to other parameters")))
}

fn complex(pairs: &[f64]) -> Zeroizing<Vec<Complex>> {
    Zeroizing::new(pairs.chunks_exact(2).map(|pair| Complex::new(pair[0], pair[1])).collect())
}

fn randomness() -> PyResult<SplitPrg> {
    Ok(SplitPrg::new(Prg::from_os().map_err(to_python)?))
}

/// Checked parameters and their tables.
#[pyclass(frozen, module = "tacit._tacit")]
pub struct CkksContext {
    context: Arc<Context>,
    failure_log2: Option<f64>,
}

impl CkksContext {
    fn build(py: Python<'_>, parameters: Result<Parameters, HeError>, failure_log2: Option<f64>) -> PyResult<Self> {
        let parameters = parameters.map_err(to_python)?;
        let context = brief(py, move || Context::new(&parameters).map_err(to_python))?;
        Ok(Self { context: Arc::new(context), failure_log2 })
    }
}

#[pymethods]
impl CkksContext {
    /// A named set.
    #[staticmethod]
    fn named(py: Python<'_>, name: &str) -> PyResult<Self> {
        let set = NamedSet::find(name);
        let set = set.ok_or_else(|| TacitError::new_err(format!("there is no set `{name}`: A, B and C are there")))?;
        Self::build(py, Parameters::new(&set.spec()), set.failure_log2)
    }

    /// What a description in JSON says.
    #[staticmethod]
    fn described(py: Python<'_>, json: &str) -> PyResult<Self> {
        let spec = serde_json::from_str(json).map_err(to_python)?;
        Self::build(py, Parameters::new(&spec), None)
    }

    /// Degree, levels, scales and security, as JSON.
    fn describe_json(&self) -> String {
        let parameters = self.context.parameters();
        let security = parameters
            .security()
            .into_iter()
            .map(|check| json!({ "what": check.what, "modulus_bits": check.modulus_log2, "most_bits": check.max }));
        let scales = (1..=parameters.levels()).map(|level| parameters.scale(level).log2());
        json!({
            "degree": parameters.degree(),
            "levels": parameters.levels(),
            "special_primes": parameters.special_primes().len(),
            "scale_bits": scales.collect::<Vec<_>>(),
            "security": security.collect::<Vec<_>>(),
            "bootstrap_failure_log2": self.failure_log2,
        })
        .to_string()
    }

    /// The key that rotates `slots` slots by `steps` at `level`; `None` if the rotation moves no slot.
    fn rotation_key(&self, slots: usize, steps: i64, level: usize) -> PyResult<Option<Key>> {
        check_level(&self.context, level)?;
        Encoder::new(&self.context, slots).map_err(to_python)?;
        let element = self.context.rotation_element(steps.rem_euclid(slots as i64));
        Ok((element != 1).then(|| key(KeyId::for_level(&self.context, KeyKind::Galois(element), level))))
    }

    /// The key that conjugates at `level`.
    fn conjugation_key(&self, level: usize) -> PyResult<Key> {
        check_level(&self.context, level)?;
        Ok(key(KeyId::for_level(&self.context, KeyKind::Galois(self.context.conjugation_element()), level)))
    }

    /// The keys for products at levels from `level` down to above `down_to`.
    fn relinearisation_keys(&self, level: usize, down_to: usize) -> PyResult<Vec<Key>> {
        check_level(&self.context, level)?;
        Ok(relinearisation_needs(&self.context, level, down_to).into_iter().map(key).collect())
    }

    /// A fresh secret key.
    fn secret(&self, py: Python<'_>) -> PyResult<CkksSecret> {
        let context = self.context.clone();
        let secret = brief(py, move || Ok(SecretKey::generate(&context, randomness()?.secret())))?;
        Ok(CkksSecret { secret: Arc::new(secret) })
    }

    /// Reads a ciphertext. The caller states the expected size of its slots instead of the sender:
    /// their root mean square is `magnitude`, and the deviation of a full ciphertext's coefficients
    /// is `deviation` (by default that of a fresh one).
    fn read(&self, py: Python<'_>, bytes: &[u8], deviation: Option<f64>, magnitude: f64) -> PyResult<CkksCiphertext> {
        let (context, bytes) = (self.context.clone(), bytes.to_vec());
        brief(py, move || {
            let expected = Estimate { deviation: deviation.unwrap_or_else(fresh_deviation), magnitude };
            let ciphertext = match Received::from_bytes(&context, &bytes, expected).map_err(to_python)? {
                Received::Full(ciphertext) => ciphertext,
                Received::Seeded(seeded) => seeded.expand(&context, magnitude),
            };
            Ok(CkksCiphertext::new(context, ciphertext))
        })
    }
}

/// A secret key: it neither leaves the process nor can be printed.
#[pyclass(frozen, module = "tacit._tacit")]
pub struct CkksSecret {
    secret: Arc<SecretKey>,
}

#[pymethods]
impl CkksSecret {
    /// Makes switching keys.
    fn keys(&self, py: Python<'_>, needs: Vec<Key>) -> PyResult<CkksKeys> {
        let secret = self.secret.clone();
        brief(py, move || {
            let context = secret.context().clone();
            let needs = needs.iter().map(|need| key_id(&context, need)).collect::<PyResult<Vec<_>>>()?;
            let keys = KeySet::generate(&secret, &needs, &mut randomness()?).map_err(to_python)?;
            Ok(CkksKeys::new(context, keys))
        })
    }

    /// Encrypts slots at `level`, with the scale of that level.
    fn encrypt(&self, py: Python<'_>, slots: PyReadonlyArray1<'_, f64>, level: usize) -> PyResult<CkksCiphertext> {
        let (secret, slots) = (self.secret.clone(), complex(slots.as_slice()?));
        brief(py, move || {
            let plaintext = encode(secret.context(), &slots, level)?;
            let ciphertext = secret.encrypt(&plaintext, &mut randomness()?);
            Ok(CkksCiphertext::new(secret.context().clone(), ciphertext))
        })
    }

    /// Encrypts slots at `level` to be sent: half of the ciphertext is a seed.
    fn encrypt_to_bytes<'py>(
        &self,
        py: Python<'py>,
        slots: PyReadonlyArray1<'py, f64>,
        level: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (secret, slots) = (self.secret.clone(), complex(slots.as_slice()?));
        let bytes = brief(py, move || {
            let plaintext = encode(secret.context(), &slots, level)?;
            Ok(secret.encrypt_seeded(&plaintext, &mut randomness()?).to_bytes(secret.context()))
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// The slots of a ciphertext.
    fn decrypt<'py>(&self, py: Python<'py>, ciphertext: &CkksCiphertext) -> PyResult<Bound<'py, PyArray1<f64>>> {
        check_same("the ciphertext", self.secret.context(), ciphertext.context())?;
        let (secret, ciphertext) = (self.secret.clone(), ciphertext.shared());
        let slots = brief(py, move || {
            let encoder = Encoder::new(secret.context(), ciphertext.slots()).map_err(to_python)?;
            let slots = encoder.decode(&secret.decrypt(&ciphertext)).map_err(to_python)?;
            Ok(Zeroizing::new(slots.iter().flat_map(|z| [z.re, z.im]).collect::<Vec<f64>>()))
        })?;
        Ok(slots.to_pyarray(py))
    }
}

fn encode(context: &Arc<Context>, slots: &[Complex], level: usize) -> PyResult<tacit_he::ckks::Plaintext> {
    check_level(context, level)?;
    let encoder = Encoder::new(context, slots.len()).map_err(to_python)?;
    encoder.encode(slots, level, context.parameters().scale(level)).map_err(to_python)
}
