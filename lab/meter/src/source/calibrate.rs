//! Measurement of the energy model's coefficients on a machine with a power sensor.
use super::Source;
use super::exercise::{Exercise, Load, watch};
use crate::MeterError;
use std::time::Duration;
use tacit_measure::device::{Coefficient, DeviceProfile};

/// Most different numbers of busy cores.
const MAX_LEVELS: u32 = 9;

/// Durations of a calibration.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Length of each step; steps run through rising and falling load, so that slow drift cancels.
    pub step: Duration,
    /// Time after a change of load before a step begins.
    pub settle: Duration,
}

/// Mean power and use over one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Mean power, watts.
    pub watts: f64,
    /// CPU seconds per second.
    pub cores: f64,
    /// Bytes per second, both ways.
    pub bytes_per_s: f64,
}

/// A fitted number with its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fitted {
    /// The number.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
}

/// Coefficients fitted to steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Idle power, watts.
    pub base_w: Fitted,
    /// Watts per busy core.
    pub w_per_core: Fitted,
    /// Joules per byte; `None` without traffic, or if it costs no more than its CPU time.
    pub j_per_byte: Option<Fitted>,
    /// Standard deviation of the steps about the fit, watts.
    pub residual_w: f64,
    /// Steps.
    pub steps: usize,
}

/// Fits `watts = base_w + w_per_core * cores + j_per_byte * bytes_per_s` by least squares.
///
/// # Errors
/// [`MeterError::malformed`] if there are too few different steps, a number is not finite, or power does not
/// rise with busy cores.
pub fn fit(steps: &[Step]) -> Result<Fit, MeterError> {
    if steps.iter().any(|s| ![s.watts, s.cores, s.bytes_per_s].iter().all(|x| x.is_finite())) {
        return Err(MeterError::malformed("calibration", "a step has a number that is not finite"));
    }
    let max_rate = steps.iter().map(|s| s.bytes_per_s).fold(0.0, tacit_floats::larger);
    if max_rate > 0.0 {
        // In units of the fastest step, so that all columns have one magnitude.
        let rows: Vec<[f64; 3]> = steps.iter().map(|s| [1.0, s.cores, s.bytes_per_s / max_rate]).collect();
        if let Some((x, errors, residual_w)) = least_squares(&rows, steps)
            && x[2] > 0.0
        {
            let j_per_byte = Some(Fitted { value: x[2] / max_rate, error: errors[2] / max_rate });
            return check_fit([x[0], x[1]], [errors[0], errors[1]], j_per_byte, residual_w, steps.len());
        }
    }
    let without_network: Vec<Step> = steps.iter().filter(|s| s.bytes_per_s == 0.0).copied().collect();
    let rows: Vec<[f64; 2]> = without_network.iter().map(|s| [1.0, s.cores]).collect();
    let (x, errors, residual_w) = least_squares(&rows, &without_network)
        .ok_or_else(|| MeterError::malformed("calibration", "too few steps with different load"))?;
    check_fit(x, errors, None, residual_w, without_network.len())
}

fn check_fit(
    x: [f64; 2],
    errors: [f64; 2],
    j_per_byte: Option<Fitted>,
    residual_w: f64,
    steps: usize,
) -> Result<Fit, MeterError> {
    if x[1] <= 0.0 || x[0] < 0.0 {
        let detail = format!("power does not rise with busy cores: {:.3} W idle, {:.3} W per core", x[0], x[1]);
        return Err(MeterError::malformed("calibration", detail));
    }
    let [base_w, w_per_core] = [0, 1].map(|i| Fitted { value: x[i], error: errors[i] });
    Ok(Fit { base_w, w_per_core, j_per_byte, residual_w, steps })
}

/// Solves the normal equations: coefficients, their standard errors, and the residual standard
/// deviation. `None` if columns are dependent or there are no more rows than columns.
fn least_squares<const N: usize>(rows: &[[f64; N]], steps: &[Step]) -> Option<([f64; N], [f64; N], f64)> {
    if rows.len() <= N {
        return None;
    }
    let mut normal = [[0.0; N]; N];
    let mut right_side = [0.0; N];
    for (row, step) in rows.iter().zip(steps) {
        for i in 0..N {
            right_side[i] += row[i] * step.watts;
            for j in 0..N {
                normal[i][j] += row[i] * row[j];
            }
        }
    }
    let inverse = invert(normal)?;
    let x: [f64; N] = std::array::from_fn(|i| (0..N).map(|j| inverse[i][j] * right_side[j]).sum());
    let squares: f64 = rows
        .iter()
        .zip(steps)
        .map(|(row, step)| (step.watts - row.iter().zip(&x).map(|(a, b)| a * b).sum::<f64>()).powi(2))
        .sum();
    let variance = squares / (rows.len() - N) as f64;
    Some((x, std::array::from_fn(|i| (variance * inverse[i][i]).max(0.0).sqrt()), variance.sqrt()))
}

/// Gauss-Jordan elimination with pivoting; `None` for a matrix that is singular to rounding.
fn invert<const N: usize>(mut a: [[f64; N]; N]) -> Option<[[f64; N]; N]> {
    let size = tacit_floats::largest_magnitude(a.iter().flatten().copied());
    let mut inverse: [[f64; N]; N] = std::array::from_fn(|i| std::array::from_fn(|j| f64::from(u8::from(i == j))));
    for column in 0..N {
        let pivot = (column..N).max_by(|&i, &j| tacit_floats::rising(&a[i][column].abs(), &a[j][column].abs()))?;
        if a[pivot][column].abs() <= size * 1e-12 {
            return None;
        }
        a.swap(column, pivot);
        inverse.swap(column, pivot);
        let scale = a[column][column];
        a[column].iter_mut().chain(&mut inverse[column]).for_each(|x| *x /= scale);
        for row in (0..N).filter(|&row| row != column) {
            let factor = a[row][column];
            for j in 0..N {
                a[row][j] -= factor * a[column][j];
                inverse[row][j] -= factor * inverse[column][j];
            }
        }
    }
    Some(inverse)
}

/// The loads to step through: 0 to all cores, one network stream, and back.
pub fn loads(cores: u32) -> Vec<Load> {
    let levels = cores.min(MAX_LEVELS - 1);
    let rising_loads = (0..=levels).map(|i| Load { cores: (cores * i).div_ceil(levels.max(1)), network: false });
    let rising_loads: Vec<Load> = rising_loads.collect();
    let network = [Load { cores: 0, network: true }; 2];
    rising_loads.iter().copied().chain(network).chain(rising_loads.iter().rev().copied()).collect()
}

/// Steps the machine through its loads while reading the source. Calls `progress` with each load.
///
/// # Errors
/// [`MeterError::Source`] if the source has no value during a step; [`MeterError::io`].
pub fn measure(
    source: &mut dyn Source,
    machine: &mut dyn Exercise,
    plan: &Plan,
    mut progress: impl FnMut(Load),
) -> Result<Vec<Step>, MeterError> {
    let own_interval = Duration::from_millis(u64::from(source.info().min_interval_ms));
    let interval = own_interval.max(Duration::from_millis(100));
    let count = u32::try_from(plan.step.as_millis() / interval.as_millis().max(1)).unwrap_or(u32::MAX).max(3);
    let mut steps = Vec::new();
    for load in loads(machine.cores()) {
        progress(load);
        machine.load(load)?;
        machine.wait(plan.settle.max(own_interval * 2));
        let watched = watch(source, machine, interval, count)?;
        let seconds = watched.used.elapsed.as_secs_f64();
        if watched.watts.len() * 2 < count as usize || seconds <= 0.0 {
            let reason = watched.error.unwrap_or_else(|| "it had no value most of the time".into());
            let remedy = "test it alone: tacit lab sensors --self-test".into();
            return Err(MeterError::Source { name: source.info().name.clone(), reason, remedy });
        }
        steps.push(Step {
            watts: watched.watts.iter().sum::<f64>() / watched.watts.len() as f64,
            cores: (watched.used.cpu_s / seconds).max(0.0),
            bytes_per_s: watched.used.bytes as f64 / seconds,
        });
    }
    machine.load(Load::default())?;
    Ok(steps)
}

impl Fit {
    /// The fit as a device profile that names the sensor.
    ///
    /// # Errors
    /// [`MeterError::malformed`] if the name is invalid or a coefficient is out of the profile's
    /// ranges.
    pub fn profile(&self, name: &str, sensor: &str) -> Result<DeviceProfile, MeterError> {
        let cited =
            |number: &Fitted, unit| Coefficient { value: number.value, source: self.cite(number, unit, sensor) };
        let j_per_byte = match &self.j_per_byte {
            Some(number) => {
                let Coefficient { value, source } = cited(number, "J");
                Coefficient { value, source: source + "; loopback traffic, without a network card" }
            }
            None => Coefficient {
                value: 0.0,
                source: format!("tacit lab calibrate with {sensor}: loopback traffic cost nothing beyond its CPU time"),
            },
        };
        let description = format!("calibrated; residual {:.3} W over {} steps", self.residual_w, self.steps);
        let (base_w, w_per_core) = (cited(&self.base_w, "W"), cited(&self.w_per_core, "W"));
        Ok(DeviceProfile::single(name, &description, base_w, w_per_core, j_per_byte)?)
    }

    fn cite(&self, number: &Fitted, unit: &str, sensor: &str) -> String {
        let (steps, error) = (self.steps, number.error);
        format!("tacit lab calibrate with {sensor}, {steps} steps, standard error {error:.2e} {unit}")
    }
}
