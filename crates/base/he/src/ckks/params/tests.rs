use super::*;
use crate::HeError;
use crate::ckks::tests::flat_spec;

#[test]
fn named_sets_have_128_bits() {
    for (name, total, levels) in [("A", 1731.0, 32), ("B", 865.0, 18), ("C", 858.0, 18)] {
        let parameters = Parameters::new(&NamedSet::find(name).unwrap().spec()).unwrap();
        assert_eq!(parameters.levels(), levels);
        let top = parameters.modulus_log2(levels, parameters.alpha(levels));
        assert!((top - total).abs() < 2.5, "set {name}: {top} bits");
        assert!(parameters.security().iter().all(SecurityCheck::holds));
        // Deviations of scales do not accumulate.
        for level in 1..=levels {
            let bits = parameters.scale(level).log2();
            assert!((bits - bits.round()).abs() < 0.01, "set {name}, level {level}: {bits}");
        }
    }
    assert!(NamedSet::find("D").is_none());
}

#[test]
fn a_rescaled_product_has_the_scale_of_the_level_below() {
    let parameters = Parameters::new(&NamedSet::find("C").unwrap().spec()).unwrap();
    for level in 2..=18 {
        let product = parameters.scale(level).times(parameters.scale(level));
        let rescaled = product.over_prime(parameters.primes()[level - 1]);
        assert!(rescaled.agrees(parameters.scale(level - 1)));
    }
}

#[test]
fn rejects_insecure_sets() {
    let spec = NamedSet::find("A").unwrap().spec();
    let wide = ParametersSpec { groups: vec![KeyGroup { up_to_level: 32, alpha: 8 }], ..spec.clone() };
    assert!(matches!(Parameters::new(&wide), Err(HeError::InsecureKey { degree: 65_536, max: 1747, .. })));
    // The sparse secret has its own table, without rows below 2^15.
    let segment = Segment { count: 2, bits: 30 };
    let small = ParametersSpec { encapsulated: true, ..flat_spec(13, 40, segment, 40, 1) };
    let refused = Parameters::new(&small);
    assert!(matches!(refused, Err(HeError::InsecureKey { max: 0, ref what, .. }) if what.contains("sparse")));
    assert!(Parameters::new(&ParametersSpec { encapsulated: false, ..small.clone() }).is_ok());
    let tiny = ParametersSpec { log_degree: 10, ..small };
    assert!(matches!(Parameters::new(&tiny), Err(HeError::Description { .. })));
    assert!(Parameters::insecure_for_tests(&tiny).is_ok());
}

#[test]
fn rejects_senseless_descriptions() {
    let good = NamedSet::find("C").unwrap().spec();
    let group = |up_to_level, alpha| KeyGroup { up_to_level, alpha };
    let bad = [
        ParametersSpec { log_degree: 17, ..good.clone() },
        // q_0 below the scale, digits above their special primes.
        ParametersSpec { base_bits: 34, ..good.clone() },
        ParametersSpec { special_bits: 34, ..good.clone() },
        ParametersSpec { base_bits: 51, ..good.clone() },
        ParametersSpec { special_bits: 3, ..good.clone() },
        ParametersSpec { groups: vec![], ..good.clone() },
        ParametersSpec { groups: vec![group(18, 0)], ..good.clone() },
        ParametersSpec { groups: vec![group(17, 4)], ..good.clone() },
        ParametersSpec { groups: vec![group(18, 4), group(18, 2)], ..good.clone() },
        ParametersSpec { segments: vec![Segment { count: usize::MAX, bits: 36 }], ..good.clone() },
    ];
    for spec in bad {
        assert!(matches!(Parameters::new(&spec), Err(HeError::Description { .. })), "{spec:?}");
    }
    let too_small = ParametersSpec { base_bits: 20, segments: vec![Segment { count: 17, bits: 20 }], ..good };
    assert!(matches!(Parameters::new(&too_small), Err(HeError::NoPrime { .. })));
}

/// Whoever names the keys of a circuit obtains none that reveals the secret.
#[test]
fn keys_below_128_bits_are_not_made() {
    use crate::ckks::keys::{KeyId, KeyKind};
    let parameters = Parameters::new(&NamedSet::find("B").unwrap().spec()).unwrap();
    let admit = |kind, level, alpha| KeyId { kind, level, alpha }.admit(&parameters);
    let levels = parameters.levels();
    admit(KeyKind::ToSparse, 1, 1).unwrap();
    admit(KeyKind::FromSparse, levels, parameters.alpha(levels)).unwrap();
    admit(KeyKind::Galois(5), levels, parameters.alpha(levels)).unwrap();
    let refused = |kind, level, alpha| matches!(admit(kind, level, alpha), Err(HeError::InsecureKey { .. }));
    assert!(
        refused(KeyKind::ToSparse, levels, 1) && refused(KeyKind::ToSparse, 2, 1) && refused(KeyKind::ToSparse, 1, 2)
    );
    assert!(refused(KeyKind::Galois(5), levels, 4) && refused(KeyKind::Relinearise, levels, 4));
    let without_sparse = Parameters::new(&NamedSet::find("C").unwrap().spec()).unwrap();
    assert!(KeyId { kind: KeyKind::ToSparse, level: 1, alpha: 1 }.admit(&without_sparse).is_err());
}
