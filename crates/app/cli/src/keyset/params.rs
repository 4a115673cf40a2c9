//! `tacit keyset params`: prints the named parameter sets.

use crate::print;
use anyhow::{Context as _, anyhow};
use serde_json::{Value, json};
use tacit_he::ckks::{Context, KeyId, KeyKind, NamedSet, Parameters, SETS, Secret, SwitchKey, derived_deviation};

/// Print the named parameter sets: primes, security, failure, sizes of keys
///
/// Example: tacit keyset params --set B
#[derive(clap::Args)]
pub struct ParamsArgs {
    /// Parameter set to print, A, B or C [default: all]
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    set: Option<String>,
}

/// Returns the parameter set of this name.
pub fn find(name: &str) -> anyhow::Result<&'static NamedSet> {
    NamedSet::find(name).ok_or_else(|| anyhow!("no parameter set {name}: there are A, B and C"))
}

pub(crate) fn run(args: &ParamsArgs, as_json: bool) -> anyhow::Result<()> {
    let sets: Vec<&NamedSet> = match &args.set {
        Some(name) => vec![find(name)?],
        None => SETS.iter().collect(),
    };
    let described = sets.into_iter().map(describe).collect::<anyhow::Result<Vec<Value>>>()?;
    if as_json {
        return print::json(&Value::Array(described));
    }
    described.iter().try_for_each(show)
}

fn describe(set: &NamedSet) -> anyhow::Result<Value> {
    let parameters = Parameters::new(&set.spec()).with_context(|| format!("set {}", set.name))?;
    let context = Context::new(&parameters)?;
    let checks = parameters.security().into_iter().map(|check| {
        let secret = match check.secret {
            Secret::Ternary => "ternary",
            Secret::Sparse => "weight 32",
        };
        json!({ "what": check.what, "secret": secret, "modulus_bits": check.modulus_log2, "most_bits": check.max })
    });
    let groups = parameters.spec().groups.iter().map(|group| {
        let key = KeyId::for_level(&context, KeyKind::Relinearise, group.up_to_level);
        let bytes = SwitchKey::packed_bytes(&context, key);
        let derivation = derivation(&context, key);
        json!({ "up_to_level": key.level, "special_primes": key.alpha, "key_bytes": bytes, "derivation": derivation })
    });
    let levels = parameters.levels();
    let scales: Vec<f64> = (1..=levels).map(|level| parameters.scale(level).log2()).collect();
    Ok(json!({
        "set": set.name,
        "purpose": set.purpose,
        "degree": parameters.degree(),
        "slots": parameters.degree() / 2,
        "levels": levels,
        "primes": parameters.primes(),
        "special_primes": parameters.special_primes(),
        "modulus_bits": parameters.modulus_log2(levels, parameters.alpha(levels)),
        "scale_bits_by_level": scales,
        "security_bits": 128,
        "security": checks.collect::<Vec<_>>(),
        "keys": groups.collect::<Vec<_>>(),
        "bootstrap_failure_log2": set.failure_log2,
    }))
}

/// Returns the cost of deriving rotation keys like `key` at the server. Null if no special primes
/// are left for masters, or if their modulus would be too large.
fn derivation(context: &Context, key: KeyId) -> Value {
    let master = KeyId { kind: KeyKind::Master(context.rotation_element(1)), ..key };
    if master.admit(context.parameters()).is_err() {
        return Value::Null;
    }
    let special = context.parameters().special_primes().len();
    let first = derived_deviation(context, master, key.level, None);
    json!({
        "master_special_primes": special - key.alpha,
        "master_modulus_bits": context.parameters().modulus_log2(key.level, special),
        "master_bytes": SwitchKey::packed_bytes(context, master),
        "derived_key_bytes": SwitchKey::derived_bytes(context, key),
        "error_log2_after_two_steps": derived_deviation(context, master, key.level, Some(first)).log2(),
    })
}

fn show(set: &Value) -> anyhow::Result<()> {
    let [name, purpose] = ["set", "purpose"].map(|key| set[key].as_str().unwrap_or("?"));
    print::line(&format!("set {name}: {purpose}"))?;
    print::line(&format!(
        "  degree {}, {} levels, {:.0} bits with special primes, 128 bits of security",
        set["degree"],
        set["levels"],
        set["modulus_bits"].as_f64().unwrap_or(f64::NAN),
    ))?;
    if let Some(failure) = set["bootstrap_failure_log2"].as_f64() {
        print::line(&format!("  a bootstrap fails with 2^{failure}"))?;
    }
    for check in set["security"].as_array().into_iter().flatten() {
        let subject = check["what"].as_str().unwrap_or("?");
        let secret = check["secret"].as_str().unwrap_or("?");
        let bits = check["modulus_bits"].as_f64().unwrap_or(f64::NAN);
        print::line(&format!("  {subject} ({secret} secret): {bits:.1} of at most {} bits", check["most_bits"]))?;
    }
    for key in set["keys"].as_array().into_iter().flatten() {
        let bytes = print::bytes(key["key_bytes"].as_u64().unwrap_or(0));
        let (level, alpha) = (&key["up_to_level"], &key["special_primes"]);
        print::line(&format!("  a key up to level {level}: {alpha} special primes, {bytes}"))?;
        let derivation = &key["derivation"];
        if let (Some(master), Some(derived)) =
            (derivation["master_bytes"].as_u64(), derivation["derived_key_bytes"].as_u64())
        {
            print::line(&format!(
                "    derived at the server from masters of {} ({:.1} bits): {} in memory, both halves",
                print::bytes(master),
                derivation["master_modulus_bits"].as_f64().unwrap_or(f64::NAN),
                print::bytes(derived),
            ))?;
        }
    }
    Ok(())
}
