//! A tour of RNS-CKKS: parameters, keys, encryption, a linear transform, a polynomial, a bootstrap,
//! decryption.
//!
//! `cargo run --release -p tacit-he --example ckks_tour` takes about 3 GB of memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use tacit_arith::prg::{Prg, SplitPrg};
use tacit_he::ckks::{
    Basis, BootstrapSpec, Bootstrapper, Complex, Context, Encoder, Estimate, Evaluator, KeyId, KeyKind, KeySet,
    LinearTransform, Method, NamedSet, Parameters, Polynomial, Received, SecretKey, TransformSpec,
};

type Failure = Box<dyn std::error::Error>;

/// Largest distance of the real parts from the expected values.
fn worst(actual: &[Complex], expected: impl Fn(usize) -> f64) -> f64 {
    actual.iter().enumerate().map(|(i, v)| (v.re - expected(i)).abs()).fold(0.0, tacit_floats::larger)
}

fn main() -> Result<(), Failure> {
    // Parameters: set B, checked key by key against 128 bits.
    let set = NamedSet::find("B").ok_or("there is a set B")?;
    let parameters = Parameters::new(&set.spec())?;
    for check in parameters.security() {
        println!("{}: {:.1} bits of at most {}", check.what, check.modulus_log2, check.max);
    }
    let context = Arc::new(Context::new(&parameters)?);

    // The circuit is built first, because it determines the keys.
    let slots = parameters.degree() / 2;
    let boot = Bootstrapper::new(
        &context,
        &BootstrapSpec {
            slots,
            slot_to_coeff: 2,
            coeff_to_slot: 3,
            message_ratio_bits: 10,
            arcsine: false,
            method: Method::Chained,
            cache_bytes: 0,
        },
    )?;
    let encoder = Encoder::new(&context, slots)?;
    let level = boot.level_out();
    // The mean of each slot and its right neighbour.
    let halves = vec![Complex::from(0.5); slots];
    let diagonals = BTreeMap::from([(0, halves.clone()), (1, halves)]);
    let prime = parameters.primes()[level - 1];
    let scale = parameters.scale(level - 1).times_prime(prime).over(parameters.scale(level));
    let mean = TransformSpec { diagonals: &diagonals, level, scale, method: Method::Hoisted, cache_bytes: 1 << 28 };
    let mean = LinearTransform::new(&encoder, &mean)?;
    let cube = Polynomial::new(Basis::Power, &[0.0, 0.5, 0.0, 0.5])?;
    let mut needs = boot.keys();
    needs.extend(mean.plan().keys(&context));
    needs.push(KeyId::for_level(&context, KeyKind::Relinearise, level));
    println!(
        "bootstrap: levels {} to {}, {} keys, failure 2^{}",
        boot.level_in(),
        level,
        boot.keys().len(),
        boot.failure_log2()
    );

    // The client: keys and a ciphertext.
    let mut prg = SplitPrg::new(Prg::from_os()?);
    let secret = SecretKey::generate(&context, prg.secret());
    let keys = KeySet::generate(&secret, &needs, &mut prg)?;
    println!("{} keys, {:.0} MB", keys.len(), keys.memory_bytes() as f64 / 1e6);
    let x: Vec<f64> = (0..slots).map(|i| (i as f64 * 0.37).sin()).collect();
    let message = secret.encrypt_seeded(&encoder.encode_real(&x, level)?, &mut prg).to_bytes(&context);
    println!("ciphertext: {} bytes", message.len());

    let circuit =
        Circuit { context: &context, encoder: &encoder, secret: &secret, boot: &boot, mean: &mean, cube: &cube };
    circuit.run(&message, &keys, &x)
}

/// The server's part. The secret only serves to show the error of each result.
struct Circuit<'a> {
    context: &'a Arc<Context>,
    encoder: &'a Encoder,
    secret: &'a SecretKey,
    boot: &'a Bootstrapper,
    mean: &'a LinearTransform,
    cube: &'a Polynomial,
}

impl Circuit<'_> {
    /// Reads the ciphertext, computes, bootstraps, and computes again.
    fn run(&self, message: &[u8], keys: &KeySet, x: &[f64]) -> Result<(), Failure> {
        let Self { context, encoder, secret, boot, mean, cube } = *self;
        let slots = x.len();
        let expected = Estimate { deviation: 3.3, magnitude: 0.7 };
        let Received::Seeded(received) = Received::from_bytes(context, message, expected)? else {
            return Err("it was sent with a seed".into());
        };
        let evaluator = Evaluator::new(context, keys);
        let means = evaluator.transform(&received.expand(context, 0.7), mean)?;
        let mean_of = |i: usize| (x[i] + x[(i + 1) % slots]) / 2.0;
        println!("means: off by 2^{:.1}", worst(&encoder.decode(&secret.decrypt(&means))?, mean_of).log2());
        let cubes = evaluator.polynomial(&means, cube)?;
        let cube_of = |i: usize| cube.at(mean_of(i));
        println!(
            "polynomial: level {}, off by 2^{:.1}",
            cubes.level(),
            worst(&encoder.decode(&secret.decrypt(&cubes))?, cube_of).log2()
        );
        let fresh = boot.bootstrap(&evaluator, &cubes)?;
        let decoded = encoder.decode(&secret.decrypt(&fresh))?;
        println!("bootstrap: level {}, off by 2^{:.1} at worst", fresh.level(), worst(&decoded, cube_of).log2());
        let cubed = evaluator.polynomial(&fresh, cube)?;
        let decoded = worst(&encoder.decode(&secret.decrypt(&cubed))?, |i| cube.at(cube_of(i)));
        println!("and on: level {}, off by 2^{:.1} at worst", cubed.level(), decoded.log2());
        Ok(())
    }
}
