use super::*;

#[test]
fn built_in_profiles_are_valid_and_cite_sources() {
    assert_eq!(DeviceProfile::names().count(), 8);
    for name in DeviceProfile::names() {
        let profile = DeviceProfile::load(name).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(profile.name(), name);
        assert!(!profile.description().is_empty());
        for mode in profile.modes() {
            for number in [&mode.base_w, &mode.w_per_core, &mode.j_per_byte] {
                let cited = number.source.contains("https://") || number.source.contains(" at ");
                assert!(number.is_assumed() || cited, "{name}/{}: {}", mode.name, number.source);
            }
            if let (Some(cores), Some(budget)) = (mode.cores, mode.budget_w) {
                let full = mode.base_w.value + f64::from(cores) * mode.w_per_core.value;
                assert!(full <= budget, "{name}/{}: {full} W within {budget} W", mode.name);
            }
        }
        assert_eq!(DeviceProfile::parse(&profile.to_toml().expect("TOML")).expect("it reads back"), profile);
    }
    let modes = |name: &str| DeviceProfile::load(name).expect("a profile").modes().len();
    assert_eq!((modes("jetson-nano"), modes("jetson-tx2"), modes("jetson-agx-xavier")), (2, 4, 4));
}

#[test]
fn wrong_profiles_are_refused() {
    let good = "name = \"mine\"\ndescription = \"x\"\ndefault_mode = \"default\"\n[[mode]]\nname = \"default\"\nbase_w = { value = 1.0, \
                source = \"assumed\" }\nw_per_core = { value = 2.0, source = \"assumed\" }\nj_per_byte = { value = 0.0, source = \"assumed\" }\n";
    let changes = [
        ("value = 1.0", "value = -1.0", "base_w"),
        ("value = 1.0", "value = nan", "base_w"),
        ("value = 2.0", "value = 1e4", "w_per_core"),
        ("source = \"assumed\"", "source = \" \"", "assumed"),
        ("default_mode = \"default\"", "default_mode = \"max\"", "default"),
        ("name = \"mine\"", "name = \"My Board\"", "lower-case"),
        ("base_w", "base_watts", "base_watts"),
        ("[[mode]]", "[[modes]]", "modes"),
    ];
    for (old, new, message) in changes {
        let text = DeviceProfile::parse(&good.replacen(old, new, 1)).unwrap_err().to_string();
        assert!(text.contains(message), "{new}: {text}");
    }
    assert!(DeviceProfile::load("/nonexistent.toml").unwrap_err().to_string().contains("nonexistent"));
    let number = |value| Coefficient { value, source: "measured".into() };
    assert!(DeviceProfile::single("a", "b", number(1.0), number(1.0), number(1.0)).is_err(), "1 J per byte");
}
