//! Selection of the rails that add up to the host's power, so that no energy counts twice.
//!
//! A board's input rail carries all other rails, so it alone counts. The first of these classes
//! with a rail applies, the outermost first:
//!
//! 1. `VDD_MUX`: input of the Jetson TX2 carrier board, above the module's `VDD_IN`;
//! 2. `VDD_IN` (Jetson TX1, TX2, Xavier NX, Orin NX, Orin Nano), `POM_5V_IN` (Jetson Nano), `VIN`, `PIN`,
//!    `power total`: module or board input;
//! 3. `Esocket0`, ... (driver `amd_energy`): processor sockets, which contain the `Ecore` rails; `card`: a
//!    whole graphics card.
//!
//! Where no such rail exists the rails are parts of the same board and are summed: `GPU`, `CPU`, `SOC`, `CV`,
//! `VDDRQ`, `SYS5V` (AGX Xavier), `VDD_GPU_SOC`, `VDD_CPU_CV`, `VIN_SYS_5V0` (AGX Orin). These sums lack the
//! losses of the first converter.
use super::Rail;

/// Whether a rail's name (upper case) belongs to a class of totals, outermost class first.
const TOTALS: [fn(&str) -> bool; 3] = [
    |name| name == "VDD_MUX",
    |name| {
        ["VDD_IN", "POM_5V_IN", "POWER TOTAL", "TOTAL"].contains(&name)
            || is_numbered(name, "VIN")
            || is_numbered(name, "PIN")
    },
    |name| name.starts_with("ESOCKET") || name == "CARD",
];

pub(crate) fn count(names: impl IntoIterator<Item = String>) -> Vec<Rail> {
    let mut rails: Vec<Rail> = names.into_iter().map(Rail::counted).collect();
    if let Some(class) = TOTALS.into_iter().find(|class| rails.iter().any(|rail| class(&rail.name.to_uppercase()))) {
        rails.iter_mut().for_each(|rail| rail.counted = class(&rail.name.to_uppercase()));
    }
    rails
}

fn is_numbered(name: &str, stem: &str) -> bool {
    name.strip_prefix(stem).is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(names: &[&str]) -> Vec<String> {
        let rails = count(names.iter().map(ToString::to_string));
        assert_eq!(rails.len(), names.len());
        rails.into_iter().filter(|r| r.counted).map(|r| r.name).collect()
    }

    #[test]
    fn input_rail_counts_alone() {
        for (names, wanted) in [
            (&["VDD_SYS_GPU", "VDD_IN", "VDD_SYS_CPU"][..], &["VDD_IN"][..]),
            (&["POM_5V_IN", "POM_5V_GPU", "POM_5V_CPU"], &["POM_5V_IN"]),
            (&["VDD_IN", "VDD_MUX", "VDD_5V0_IO_SYS"], &["VDD_MUX"]),
            (&["vin", "vout1", "pout1"], &["vin"]),
            (&["Ecore000", "Esocket0", "Esocket1"], &["Esocket0", "Esocket1"]),
        ] {
            assert_eq!(counted(names), wanted);
        }
    }

    #[test]
    fn sums_parts_without_input_rail() {
        let orin = ["VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"];
        assert_eq!(counted(&orin), orin);
        let xavier = ["GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V"];
        assert_eq!(counted(&xavier), xavier);
    }
}
