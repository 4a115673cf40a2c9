//! Self-test and calibration, on a simulated machine and clock.
use crate::{message, tree, usable};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;
use tacit_measure::device::DeviceProfile;
use tacit_meter::source::calibrate::{Plan, Step, fit, loads, measure};
use tacit_meter::source::{
    Exercise, Load, MemoryTree, SelfTest, SelfTestReport, Source, ThisMachine, Usage, open, self_test,
};
use tacit_meter::{MeterError, source::Roots};

type Sensor = Box<dyn FnMut(&MemoryTree, Usage, Load)>;

/// A simulated machine of four cores, whose load shows in a sensor file.
struct Machine {
    tree: Arc<MemoryTree>,
    usage: Usage,
    load: Load,
    /// Cores that other programs keep busy.
    restless: f64,
    sensor: Sensor,
}

impl Machine {
    fn new(tree: Arc<MemoryTree>, sensor: impl FnMut(&MemoryTree, Usage, Load) + 'static) -> Self {
        Self { tree, usage: Usage::default(), load: Load::default(), restless: 0.0, sensor: Box::new(sensor) }
    }
}

impl Exercise for Machine {
    fn cores(&self) -> u32 {
        4
    }

    fn load(&mut self, load: Load) -> Result<(), MeterError> {
        self.load = load;
        Ok(())
    }

    fn wait(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.usage.elapsed += time;
        self.usage.cpu_s +=
            seconds * (self.restless + f64::from(self.load.cores) + if self.load.network { 1.5 } else { 0.0 });
        self.usage.bytes += if self.load.network { (seconds * 1e9) as u64 } else { 0 };
        (self.sensor)(&self.tree, self.usage, self.load);
    }

    fn usage(&mut self) -> Result<Usage, MeterError> {
        Ok(self.usage)
    }
}

const POWER: &str = "/sys/class/hwmon/hwmon0/power1_input";
const ENERGY: &str = "/sys/class/powercap/intel-rapl:0/energy_uj";

/// A source and the simulated machine that it measures.
struct Bench {
    source: Box<dyn Source>,
    machine: Machine,
}

impl Bench {
    fn test(&mut self) -> Result<SelfTestReport, MeterError> {
        self_test(&mut *self.source, &mut self.machine, &SelfTest::default())
    }
}

fn hwmon(sensor: impl FnMut(&MemoryTree, Usage, Load) + 'static) -> Bench {
    let (tree, roots) = tree([("/sys/class/hwmon/hwmon0/name", "ina226"), (POWER, "3000000")]);
    Bench { source: usable(&roots, "hwmon:ina226"), machine: Machine::new(tree, sensor) }
}

fn rapl(sensor: impl FnMut(&MemoryTree, Usage, Load) + 'static) -> Bench {
    let (tree, roots) = tree([("/sys/class/powercap/intel-rapl:0/name", "package-0"), (ENERGY, "1000")]);
    Bench { source: usable(&roots, "rapl"), machine: Machine::new(tree, sensor) }
}

/// Alternates between two values.
fn alternating(values: [u64; 2]) -> impl FnMut() -> u64 {
    let mut odd = false;
    move || {
        odd = !odd;
        values[usize::from(odd)]
    }
}

fn watts(load: Load) -> f64 {
    3.0 + 1.1 * f64::from(load.cores)
}

#[test]
fn accepts_responsive_source() {
    let mut noise = alternating([0, 20_000]);
    let mut bench = hwmon(move |tree, _, load| tree.write(POWER, (watts(load) * 1e6) as u64 + noise()));
    let report = bench.test().unwrap();
    assert!((report.idle.mean_w - 3.01).abs() < 1e-6, "{report:?}");
    assert!((report.load.mean_w - 7.41).abs() < 1e-6, "{report:?}");
    assert_eq!((report.idle.n, report.load.n), (10, 10));
    assert!((report.resolution_w - 0.02).abs() < 1e-6);
    assert!(!report.is_coarse());
    assert_eq!(bench.machine.load, Load::default());
    assert!(bench.machine.usage.elapsed < Duration::from_secs(6));
}

#[test]
fn accepts_responsive_counter() {
    let mut bench = rapl(|tree, usage, _| {
        tree.write(ENERGY, ((3.0 * usage.elapsed.as_secs_f64() + 1.1 * usage.cpu_s) * 1e6) as u64);
    });
    let report = bench.test().unwrap();
    assert!((report.load.mean_w - report.idle.mean_w - 4.4).abs() < 1e-3, "{report:?}");
}

#[test]
fn refuses_unresponsive_source() {
    // A counter that runs, but not faster under load, a sensor with noise, and one that falls.
    let flat =
        |tree: &MemoryTree, usage: Usage, _: Load| tree.write(ENERGY, (usage.elapsed.as_secs_f64() * 5e6) as u64);
    let mut power = alternating([2_000_000, 4_000_000]);
    let noise = move |tree: &MemoryTree, _: Usage, _: Load| tree.write(POWER, power());
    let falls = |tree: &MemoryTree, _: Usage, load: Load| tree.write(POWER, 9_000_000 - 1_000_000 * load.cores);
    for (mut bench, wanted) in [
        (hwmon(|_, _, _| {}), "stands still at 3.000 W"),
        (rapl(|_, _, _| {}), "stands still at 0.000 W"),
        (rapl(flat), "5.000 W"),
        (hwmon(noise), "does not rise"),
        (hwmon(falls), "does not rise"),
    ] {
        let text = message(bench.test());
        assert!(text.contains(wanted), "{text}");
    }
}

#[test]
fn reports_busy_machine() {
    let mut power = alternating([6_900_000, 7_000_000]);
    let mut bench = hwmon(move |tree, _, _| tree.write(POWER, power()));
    bench.machine.restless = 3.0;
    let text = message(bench.test());
    assert!(text.contains("75 % busy at rest"), "{text}");
}

#[test]
fn refuses_vanished_source() {
    let vanish = |tree: &MemoryTree, _: Usage, _: Load| tree.remove(POWER);
    let text = message(hwmon(vanish).test());
    assert!(text.contains("0 of 20 readings"), "{text}");
    assert!(text.contains("device is gone"), "{text}");
}

#[test]
fn marks_coarse_sensor() {
    let write_whole_watts =
        |tree: &MemoryTree, _: Usage, load: Load| tree.write(POWER, watts(load).round() as u64 * 1_000_000);
    let report = hwmon(write_whole_watts).test().unwrap();
    assert!((report.resolution_w - 4.0).abs() < 1e-9 || (report.resolution_w - 1.0).abs() < 1e-9);
    assert!(report.is_coarse());
    // A rise below the sensor's resolution: 3.0 to 3.4 W, both read as 3.
    let small = |tree: &MemoryTree, _: Usage, load: Load| {
        tree.write(POWER, (3.0 + 0.1 * f64::from(load.cores)).round() as u64 * 1_000_000);
    };
    assert!(message(hwmon(small).test()).contains("stands still"));
}

#[test]
fn this_machine_loads_and_rests() {
    let mut machine = ThisMachine::new().unwrap();
    machine.load(Load { cores: 1, network: true }).unwrap();
    let before = machine.usage().unwrap();
    let works = |now: Usage| now.elapsed > before.elapsed && now.cpu_s > before.cpu_s && now.bytes > before.bytes;
    for _ in 0..1000 {
        machine.wait(Duration::from_millis(30));
        if works(machine.usage().unwrap()) {
            break;
        }
    }
    let after = machine.usage().unwrap();
    assert!(works(after), "processor time passed and bytes went over the loopback: {before:?} {after:?}");
    machine.load(Load::default()).unwrap();
    let bytes_at_rest = machine.usage().unwrap().bytes;
    machine.wait(Duration::from_millis(50));
    assert_eq!(machine.usage().unwrap().bytes, bytes_at_rest);
}

#[test]
fn calibration_recovers_model_coefficients() {
    let mut model = open("model:raspberry-pi-4b", &Roots::system()).unwrap();
    let mut machine = Machine::new(Arc::default(), |_, _, _| {});
    let plan = Plan { step: Duration::from_secs(2), settle: Duration::from_millis(100) };
    let mut count = 0;
    let steps = measure(&mut *model, &mut machine, &plan, |_| count += 1).unwrap();
    assert_eq!((steps.len(), count), (12, 12));
    let fit = fit(&steps).unwrap();
    assert!((fit.base_w.value - 2.7).abs() < 1e-6, "{fit:?}");
    assert!((fit.w_per_core.value - 0.925).abs() < 1e-6, "{fit:?}");
    assert!((fit.j_per_byte.unwrap().value - 1e-8).abs() < 1e-12, "{fit:?}");
    let profile = fit.profile("my-board", "hwmon:ina226").unwrap();
    let text = profile.to_toml().unwrap();
    assert!(text.contains("tacit lab calibrate with hwmon:ina226, 12 steps"), "{text}");
    assert_eq!(DeviceProfile::parse(&text).unwrap(), profile);
    assert!(fit.profile("My Board", "x").is_err());
}

#[test]
fn loads_rise_and_fall() {
    let cores = |n: u32| loads(n).iter().map(|l| l.cores).collect::<Vec<_>>();
    assert_eq!(cores(2), [0, 1, 2, 0, 0, 2, 1, 0]);
    assert_eq!(cores(64).len(), 20);
    assert_eq!(cores(64)[8], 64);
    assert_eq!(loads(4).iter().filter(|l| l.network).count(), 2);
}

fn step(watts: f64, cores: f64, bytes_per_s: f64) -> Step {
    Step { watts, cores, bytes_per_s }
}

#[test]
fn refuses_meaningless_fits() {
    let falling: Vec<Step> = (0..5).map(|i| step(9.0 - f64::from(i), f64::from(i), 0.0)).collect();
    for (steps, wanted) in [
        (&[][..], "too few"),
        (&[step(1.0, 1.0, 0.0); 9], "too few"),
        (&[step(f64::NAN, 1.0, 0.0); 9], "finite"),
        (&falling, "does not rise"),
    ] {
        assert!(message(fit(steps)).contains(wanted), "{steps:?}");
    }
    // Traffic with a negative coefficient is left out, together with its steps.
    let mut steps: Vec<Step> = (0..5).map(|i| step(2.0 + f64::from(i), f64::from(i), 0.0)).collect();
    steps.extend([step(1.0, 1.0, 1e9); 2]);
    let fit = fit(&steps).unwrap();
    assert_eq!((fit.j_per_byte, fit.steps), (None, 5));
    assert!((fit.base_w.value - 2.0).abs() < 1e-9);
    assert!((fit.w_per_core.value - 1.0).abs() < 1e-9);
}

proptest! {
    /// Synthetic steps with known coefficients and noise: the truth lies within five standard errors, and
    /// exactly without noise.
    #[test]
    fn least_squares_recovers_coefficients(
        base in 0.5f64..100.0, core in 0.1f64..20.0, byte in 1e-10f64..1e-7,
        noise in prop::collection::vec(-1.0f64..1.0, 20), size in prop_oneof![Just(0.0), 1e-3f64..0.1],
    ) {
        let steps: Vec<Step> = loads(8).iter().zip(&noise).map(|(load, noise)| {
            let cores = f64::from(load.cores) + if load.network { 1.7 } else { 0.02 };
            let bytes = if load.network { 2.5e9 } else { 0.0 };
            step(base + core * cores + byte * bytes + size * noise, cores, bytes)
        }).collect();
        let fit = fit(&steps).unwrap();
        let near = |fitted: tacit_meter::source::calibrate::Fitted, truth: f64, scale: f64| {
            (fitted.value - truth).abs() <= 5.0 * fitted.error + 2.0 * size * scale + 1e-9 * truth.max(scale)
        };
        prop_assert!(near(fit.base_w, base, 1.0), "{fit:?}");
        prop_assert!(near(fit.w_per_core, core, 1.0), "{fit:?}");
        if let Some(j) = fit.j_per_byte {
            prop_assert!(near(j, byte, 1.0 / 2.5e9), "{fit:?}");
        }
        prop_assert!(fit.residual_w <= size * 1.2 + 1e-6);
    }
}
