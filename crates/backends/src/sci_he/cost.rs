//! Exact costs of a plan, but for memory, which is an estimate.

use tacit_arith::prg::PublicSeed;
use tacit_he::bfv::{ANSWER_BYTES, Ciphertext, DEGREE, FRESH_BYTES, GALOIS_KEY_BYTES, GaloisKey, PUBLIC_KEY_BYTES};
use tacit_net::HEADER_BYTES;

use super::chain;
use super::plan::{SlotPlan, Upload};
use super::server::Done;
use super::units::{keys, lift_spec, units};
use crate::{PartyCost, PhaseCost, Work};

/// Primes of a ciphertext, of an answer, of a key.
const LEVELS: [u64; 3] = [4, 2, 5];

fn message(bytes: usize) -> u64 {
    (bytes + HEADER_BYTES) as u64
}

/// The lattice keys of all plans: bytes to the server, and what it keeps.
pub(super) fn setup(plans: &[&SlotPlan]) -> PhaseCost {
    let count = keys(plans).len();
    let kept = (count * GaloisKey::MEMORY_BYTES) as u64;
    let server = PartyCost { stored_bytes: kept, peak_memory_bytes: kept, ..PartyCost::default() };
    let up_bytes = message(PUBLIC_KEY_BYTES) + count as u64 * message(GALOIS_KEY_BYTES);
    PhaseCost { up_bytes, server, ..PhaseCost::default() }
}

/// What the server does for the tensors of one exchange.
pub(super) fn done(plan: &SlotPlan) -> Done {
    let mut done = Done::default();
    for upload in &plan.uploads {
        let tiles = plan.batch * upload.limbs as usize * upload.layout.tiles();
        let steps = upload.turns.iter().map(|turns| chain::rotations(&chain::chain(turns)));
        done.rotations += (tiles * steps.sum::<usize>()) as u64;
        let of_layer: Vec<Vec<[usize; 2]>> = upload.members.iter().map(|&k| plan.products(upload, k)).collect();
        for unit in units(plan, upload) {
            let layer = upload.members.iter().position(|&k| k == unit.layer).expect("units are of its layers");
            let [kept, swapped] = of_layer[layer][unit.output];
            done.rotations += plan.batch as u64 * u64::from(swapped > 0);
            done.products += (plan.batch * (kept + swapped)) as u64;
        }
    }
    done
}

/// The offline phase of one exchange.
pub(super) fn of(plan: &SlotPlan) -> PhaseCost {
    let done = done(plan);
    let mut cost = PhaseCost::default();
    for upload in &plan.uploads {
        let (up, down) = lift_spec(plan, upload).bytes();
        let (ciphertexts, answers) = (plan.batch * upload.ciphertexts(), plan.batch * units(plan, upload).len());
        cost.up_bytes += ciphertexts as u64 * message(FRESH_BYTES) + up as u64;
        cost.down_bytes +=
            plan.batch as u64 * message(PublicSeed::BYTES) + answers as u64 * message(ANSWER_BYTES) + down as u64;
        // One for the mask of all, one for each lift.
        cost.exchanges += 1;
        cost.server.peak_memory_bytes += (ciphertexts * Ciphertext::MEMORY_BYTES) as u64 + sums(plan, upload);
        cost.client.work.ntts += ciphertexts as u64 * (2 * LEVELS[0] + 1) + answers as u64 * (2 * LEVELS[1] + 1);
        let raises: usize = upload.turns.iter().map(|turns| chain::raises(&chain::chain(turns))).sum();
        let raised = (plan.batch * raises * upload.limbs as usize * upload.layout.tiles() + answers) as u64;
        cost.server.work.ntts += raised * LEVELS[0] * LEVELS[2] + answers as u64 * (2 * LEVELS[0] + LEVELS[1] + 1);
    }
    cost.exchanges += 1;
    cost.server.work += Work {
        ntts: done.rotations * 2 * LEVELS[2],
        key_switches: done.rotations,
        // Each product multiplies both halves of a ciphertext modulo all its primes.
        macs: done.products * 2 * LEVELS[0] * DEGREE as u64,
        ..Work::default()
    };
    cost
}

/// Memory of the sums of a tile: two halves of two accumulators with a high and a low word each.
fn sums(plan: &SlotPlan, upload: &Upload) -> u64 {
    let blocks = upload.members.iter().map(|&k| upload.layout.out_blocks(&plan.consumers()[k]));
    blocks.sum::<usize>() as u64 * 2 * 2 * Ciphertext::MEMORY_BYTES as u64
}
