//! Costs of a plan: exact, except for memory, which is an estimate.

use tacit_arith::prg::PublicSeed;
use tacit_he::bfv::{ANSWER_BYTES, Ciphertext, DEGREE, FRESH_BYTES, GALOIS_KEY_BYTES, GaloisKey, PUBLIC_KEY_BYTES};
use tacit_mpc::ot::PlannedOts;
use tacit_net::TrafficModel;

use super::chain;
use super::plan::{SlotPlan, Upload};
use super::server::Done;
use super::units::{keys, lift_spec, units};
use tacit_backend_api::{PartyCost, Sides, Work};

/// Number of primes of a ciphertext, of an answer, of a key.
const PRIMES: [u64; 3] = [4, 2, 5];

/// Records the traffic of sending the lattice keys of all plans.
pub(super) fn add_setup_traffic(plans: &[&SlotPlan], traffic: &mut TrafficModel) {
    traffic.up(PUBLIC_KEY_BYTES);
    traffic.ups(keys(plans).len() as u64, GALOIS_KEY_BYTES);
}

/// Cost, at the server, of holding these keys.
pub(super) fn key_memory(plans: &[&SlotPlan]) -> PartyCost {
    let bytes = (keys(plans).len() * GaloisKey::MEMORY_BYTES) as u64;
    PartyCost { stored_bytes: bytes, peak_memory_bytes: bytes, ..PartyCost::default() }
}

/// Work of the server for the tensors of one exchange.
pub(super) fn count_work(plan: &SlotPlan) -> Done {
    let mut done = Done::default();
    for upload in &plan.uploads {
        let tiles = plan.batch * upload.limbs as usize * upload.layout.tiles();
        let steps = upload.turns.iter().map(|turns| chain::rotations(&chain::chain(turns)));
        done.rotations += (tiles * steps.sum::<usize>()) as u64;
        let layer_products: Vec<Vec<[usize; 2]>> = upload.members.iter().map(|&k| plan.products(upload, k)).collect();
        for unit in units(plan, upload) {
            let layer = upload.members.iter().position(|&k| k == unit.layer).expect("units are of its layers");
            let [in_place, swapped] = layer_products[layer][unit.output];
            done.rotations += plan.batch as u64 * u64::from(swapped > 0);
            done.products += (plan.batch * (in_place + swapped)) as u64;
        }
    }
    done
}

pub(super) fn add_traffic(plan: &SlotPlan, ots: &mut PlannedOts, traffic: &mut TrafficModel) {
    for upload in &plan.uploads {
        traffic.ups((plan.batch * upload.ciphertexts()) as u64, FRESH_BYTES);
    }
    for upload in &plan.uploads {
        let answers = units(plan, upload).len() as u64;
        for _ in 0..plan.batch {
            traffic.down(PublicSeed::BYTES);
            traffic.downs(answers, ANSWER_BYTES);
        }
        lift_spec(plan, upload).add_traffic(ots, traffic);
    }
}

/// Work of client and server in one exchange, without OTs.
pub(super) fn work(plan: &SlotPlan) -> Sides<PartyCost> {
    let (done, mut costs) = (count_work(plan), Sides::<PartyCost>::default());
    let Sides { client, server } = &mut costs;
    for upload in &plan.uploads {
        let (ciphertexts, answers) = (plan.batch * upload.ciphertexts(), plan.batch * units(plan, upload).len());
        server.peak_memory_bytes += (ciphertexts * Ciphertext::MEMORY_BYTES) as u64 + sums(plan, upload);
        client.work.ntts += ciphertexts as u64 * (2 * PRIMES[0] + 1) + answers as u64 * (2 * PRIMES[1] + 1);
        let raises: usize = upload.turns.iter().map(|turns| chain::raises(&chain::chain(turns))).sum();
        let raised = (plan.batch * raises * upload.limbs as usize * upload.layout.tiles() + answers) as u64;
        server.work.ntts += raised * PRIMES[0] * PRIMES[2] + answers as u64 * (2 * PRIMES[0] + PRIMES[1] + 1);
    }
    server.work += Work {
        ntts: done.rotations * 2 * PRIMES[2],
        key_switches: done.rotations,
        // Each product multiplies both halves of a ciphertext modulo all its primes.
        macs: done.products * 2 * PRIMES[0] * DEGREE as u64,
        ..Work::default()
    };
    costs
}

/// Memory of the sums of a tile: two halves of two accumulators with a high and a low word each.
fn sums(plan: &SlotPlan, upload: &Upload) -> u64 {
    let blocks = upload.members.iter().map(|&k| upload.layout.out_blocks(&plan.consumers()[k]));
    blocks.sum::<usize>() as u64 * 2 * 2 * Ciphertext::MEMORY_BYTES as u64
}
