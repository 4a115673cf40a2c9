use super::*;
use proptest::prelude::*;

/// A run of irregular intervals of constant power, starting anywhere.
fn run() -> impl Strategy<Value = Vec<(f64, f64)>> {
    (0.0..100.0_f64, 0.0..50.0_f64, prop::collection::vec((0.001..3.0_f64, -1.0..30.0_f64), 1..60)).prop_map(
        |(start, offset, steps)| {
            let mut points = vec![(start, offset)];
            for (dt, watts) in steps {
                let (t, j) = points[points.len() - 1];
                points.push((t + dt, j + dt * watts));
            }
            points
        },
    )
}

proptest! {
    #[test]
    fn energy_is_conserved_as_the_paper_scales(runs in prop::collection::vec(run(), 1..8), slot_s in 0.05..5.0_f64) {
        let views: Vec<&Curve> = runs.iter().map(Vec::as_slice).collect();
        let merged = merge(&views, slot_s).unwrap();
        let ends = |r: &Curve| (r[r.len() - 1].0 - r[0].0, r[r.len() - 1].1 - r[0].1);
        let k = runs.len() as f64;
        let t_star = runs.iter().map(|r| ends(r).0).sum::<f64>() / k;
        prop_assert!((merged.duration_s - t_star).abs() < 1e-9);
        // Slots cover [0, t*] without gap or overlap.
        let mut at = 0.0;
        for slot in &merged.slots {
            prop_assert!((slot.start_s - at).abs() < 1e-9 && slot.length_s > 0.0 && slot.length_s <= slot_s * (1.0 + 1e-6));
            at = slot.start_s + slot.length_s;
        }
        prop_assert!((at - t_star).abs() < 1e-9);
        let total: f64 = merged.slots.iter().map(|s| s.mean_w * s.length_s).sum();
        let expected = runs.iter().map(|r| { let (t, e) = ends(r); e * t_star / t }).sum::<f64>() / k;
        prop_assert!((total - expected).abs() <= 1e-7 * (1.0 + expected.abs()) * k, "{total} against {expected}");
        prop_assert!(merged.slots.iter().all(|s| s.sd_w >= 0.0 && (runs.len() > 1 || s.sd_w == 0.0)));
    }

    #[test]
    fn equal_runs_merge_to_themselves(run in run(), k in 1_usize..5) {
        let views: Vec<&Curve> = std::iter::repeat_n(run.as_slice(), k).collect();
        let (one, many) = (merge(&views[..1], 1.0).unwrap(), merge(&views, 1.0).unwrap());
        prop_assert_eq!(one.slots.len(), many.slots.len());
        for (a, b) in one.slots.iter().zip(&many.slots) {
            prop_assert!((a.mean_w - b.mean_w).abs() < 1e-6 && b.sd_w < 1e-5);
        }
    }
}

#[test]
fn two_runs_by_hand() {
    // 2 s at 10 W and 4 s at 1 W then 3 W: t* = 3; the second one's step comes at 2 * 3/4 = 1.5 s.
    let short = [(0.0, 0.0), (2.0, 20.0)];
    let long = [(5.0, 0.0), (7.0, 2.0), (9.0, 8.0)];
    let merged = merge(&[&short, &long], 1.0).unwrap();
    assert_eq!((merged.duration_s, merged.runs, merged.slots.len()), (3.0, 2, 3));
    let means: Vec<f64> = merged.slots.iter().map(|s| s.mean_w).collect();
    for (mean, expected) in means.iter().zip([5.5, 6.0, 6.5]) {
        assert!((mean - expected).abs() < 1e-12, "{means:?}");
    }
    assert!((merged.slots[0].sd_w - 9.0 / 2_f64.sqrt()).abs() < 1e-12);
}

#[test]
fn a_run_shorter_than_a_slot_is_one_slot_and_the_last_one_is_what_remains() {
    let run = [(0.0, 0.0), (0.25, 1.0)];
    let merged = merge(&[&run], 1.0).unwrap();
    assert_eq!(merged.slots, [Slot { start_s: 0.0, length_s: 0.25, mean_w: 4.0, sd_w: 0.0 }]);
    let run = [(0.0, 0.0), (2.5, 10.0)];
    assert_eq!(merge(&[&run], 1.0).unwrap().slots[2].length_s, 0.5);
    let whole = [(0.0, 0.0), (3.0, 10.0)];
    assert_eq!(merge(&[&whole], 1.0).unwrap().slots.len(), 3);
}

#[test]
fn what_is_no_run_is_refused() {
    let good = [(0.0, 0.0), (1.0, 1.0)];
    assert!(merge(&[], 1.0).is_none());
    assert!(merge(&[&good, &[(0.0, 0.0)]], 1.0).is_none(), "one point");
    assert!(merge(&[&[(0.0, 0.0), (0.0, 1.0)]], 1.0).is_none(), "time stands still");
    assert!(merge(&[&[(0.0, 0.0), (1.0, f64::NAN)]], 1.0).is_none());
    assert!(merge(&[&good], 0.0).is_none());
    assert!(merge(&[&good], 1e-9).is_none(), "too many slots");
}
