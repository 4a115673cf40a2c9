//! RNS-CKKS: approximate arithmetic on encrypted vectors of real or complex numbers ([CKKS17],
//! [CHKKS18]).

pub mod approximate;
mod boot;
mod bytes;
mod cipher;
mod context;
mod counters;
mod divide;
mod double;
mod encoder;
mod encrypt;
mod eval;
mod keys;
mod limb;
mod noise;
mod params;
mod poly;
mod scale;
mod shape;

pub use boot::{BootstrapSpec, Bootstrapper, MESSAGE_RATIO_BITS};
pub use bytes::Received;
pub use cipher::{Ciphertext, Plaintext};
pub use context::Context;
pub use counters::{Counters, Counts};
pub use encoder::{Complex, Encoder};
pub use encrypt::SeededCiphertext;
pub use eval::{
    Basis, Evaluator, LinearTransform, Method, Polynomial, Powers, Raised, TransformPlan, TransformSpec, TransformWork,
    relinearisation_needs,
};
pub use keys::{
    Derivation, FileState, KeyFile, KeyForm, KeyId, KeyKind, KeyMaker, KeySet, Origin, PartFile, PublicKey, SecretKey,
    SwitchKey, derived_deviation, merge_needs,
};
pub use noise::{Estimate, digits_deviation, fresh_deviation, public_deviation, rounding_deviation};
pub use params::{
    KeyGroup, NamedSet, Parameters, ParametersSpec, SETS, SPARSE_WEIGHT, Secret, SecurityCheck, Segment,
    max_modulus_bits,
};
pub use poly::{Coeff, Ntt, Poly};
pub use scale::Scale;
pub use shape::Shape;

#[cfg(test)]
mod peer_tests;
#[cfg(test)]
mod statistics_tests;
#[cfg(test)]
mod tests;
