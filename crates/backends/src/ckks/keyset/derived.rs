//! The chosen set with the rotation keys of linear steps derived at the server ([LLKN23]): a few masters
//! travel, both halves of each key stay. This is computed only: the back end plans no derivation.

use std::collections::BTreeMap;

use tacit_he::ckks::{Derivation, KeyId, KeyKind, SwitchKey};

use super::super::frame::he;
use super::KeySetChoice;
use super::cayley::Hops;
use super::running::Running;
use super::search::Selection;
use crate::BackendError;

/// Steps that a key may be away from the identity, where signed powers of two need no more: each adds noise.
const MOST_STEPS: u32 = 3;

/// `selection` with masters in place of the keys that they give; nothing where the parameters leave masters
/// no special primes, or nothing is gained.
///
/// # Errors
/// None in practice.
pub(super) fn derived(running: &Running<'_>, selection: &Selection) -> Result<Option<KeySetChoice>, BackendError> {
    let context = &*running.frame.context;
    let (choice, options) = running.selected("auto, derived", selection)?;
    let distances = running.distances();
    let master = |id: &KeyId, k: i64| KeyId { kind: KeyKind::Master(context.rotation_element(k)), ..*id };
    // By special primes: masters serve keys with as many, up to their level.
    let mut groups: BTreeMap<usize, Vec<(KeyId, i64)>> = BTreeMap::new();
    let keys = running.keys(&options)?;
    for id in &keys {
        let KeyKind::Galois(element) = id.kind else { continue };
        let Some(&k) = distances.get(&element) else { continue };
        if master(id, 1).admit(context.parameters()).is_ok() {
            groups.entry(id.alpha).or_default().push((*id, k));
        }
    }
    let (mut made, mut transforms, mut masters_in_all) = (choice.clone(), 0, 0);
    for of in groups.values() {
        let n = context.degree() / 2;
        let level = of.iter().map(|(id, _)| id.level).max().unwrap_or(1);
        let generators = generators(n, &of.iter().map(|(_, k)| *k).collect::<Vec<_>>());
        let masters: Vec<KeyId> = generators.iter().map(|&k| master(&KeyId { level, ..of[0].0 }, k)).collect();
        let needs: Vec<KeyId> = of.iter().map(|(id, _)| *id).collect();
        let plan = Derivation::new(context, &needs, &masters).map_err(he)?;
        let sent: u64 = needs.iter().map(|&id| SwitchKey::packed_bytes(context, id) as u64).sum();
        let upload = plan.upload_bytes(context) as u64;
        if upload >= sent {
            continue;
        }
        made.bytes = made.bytes - sent + upload;
        made.rotation_bytes = made.rotation_bytes - sent + upload;
        made.memory = made.memory - sent + plan.memory_bytes(context) as u64;
        made.keys = made.keys - needs.len() + masters.len();
        made.rotation_keys = made.rotation_keys - needs.len() + masters.len();
        transforms += plan.transforms(context);
        masters_in_all += masters.len();
    }
    if masters_in_all == 0 {
        return Ok(None);
    }
    let once = transforms as f64 * running.rates.ntt_s;
    let about =
        format!("as auto, rotation keys made at the server from {masters_in_all} masters, once, in {once:.1} s");
    Ok(Some(KeySetChoice { about, options: None, ..made }))
}

/// Few distances that all of `needs` are sums of: of the signed powers of two those that cannot be left out
/// without a sum of more than [`MOST_STEPS`].
fn generators(n: usize, needs: &[i64]) -> Vec<i64> {
    let mut kept: Vec<i64> = (0..n.trailing_zeros()).flat_map(|b| [1 << b, n as i64 - (1 << b)]).collect();
    let farthest = |generators: &[i64]| {
        let hops = Hops::new(n, generators.iter().copied());
        needs.iter().map(|&k| hops.of(k)).max().unwrap_or(0)
    };
    let most = farthest(&kept).max(MOST_STEPS);
    for generator in kept.clone() {
        let without: Vec<i64> = kept.iter().copied().filter(|k| *k != generator).collect();
        if farthest(&without) <= most {
            kept = without;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generators_reach_all_and_none_is_idle() {
        let needs = [3, 33, 1, 1056, 16_383, 5 * 32];
        let found = generators(1 << 14, &needs);
        let reach = |generators: &[i64]| {
            let hops = Hops::new(1 << 14, generators.iter().copied());
            needs.iter().all(|&k| hops.of(k) <= MOST_STEPS)
        };
        assert!(reach(&found) && found.len() < 12, "{found:?}");
        for k in &found {
            assert!(!reach(&found.iter().copied().filter(|g| g != k).collect::<Vec<_>>()), "{k} is idle");
        }
    }
}
