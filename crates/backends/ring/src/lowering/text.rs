//! Formats a lowering's report as text.

use std::fmt;

use super::report::{Choice, Expected, OutputErrors, Overflow, RingReport};

impl RingReport {
    /// Smallest and largest ring of the linear layers, and of the tensors that are compared.
    pub fn widths(&self) -> ([u32; 2], [u32; 2]) {
        let span =
            |widths: Vec<u32>| [widths.iter().min().copied().unwrap_or(0), widths.iter().max().copied().unwrap_or(0)];
        let linear = self.layers.iter().filter(|l| l.weight_bits.is_some()).map(|l| l.width).collect();
        (span(linear), span(self.layers.iter().filter_map(|l| l.compared_width).collect()))
    }

    fn overflow(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Overflow { certain, likely, least_factor } = self.overflow;
        match likely {
            0 => {
                writeln!(f, "overflow     impossible for every accepted input: the weights bound all {certain} tensors")
            }
            _ => writeln!(
                f,
                "overflow     impossible for every accepted input at {certain} of {} tensors, whose bounds follow from the weights; only unlikely at \
                 the others, whose rings hold {least_factor:.1} times what calibration saw, or more (the option `clamp=true` makes it impossible \
                 everywhere, at a price)",
                certain + likely
            ),
        }
    }

    fn trade_off(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (k, c) in self.choices.iter().enumerate() {
            let head = if k == 0 { "trade-off" } else { "" };
            let agreement = c.expected_agreement.map_or(String::new(), |a| format!(", agreement {:.2} %", 100.0 * a));
            let (cost, error) = (c.cost / f64::from(1 << 10), 100.0 * c.output_error);
            let Choice { activations: a, weights: w, relu_drop, .. } = c;
            let dropped = if *relu_drop > 0 { format!(", {relu_drop} not tested") } else { String::new() };
            writeln!(
                f,
                "{head:<12} {cost:>10.1} KiB online at {a:>2} and {w:>2} bits{dropped}: output error {error:.3} %{agreement}"
            )?;
        }
        Ok(())
    }

    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n{:>4} {:<34} {:<9} {:<16} {:>5} {:>4} {:>3} {:>8} {:>10} {:>10} {:>11}",
            "node", "name", "op", "shape", "width", "frac", "f_w", "headroom", "max error", "mean error", "comparisons"
        )?;
        for l in &self.layers {
            let shape = l.shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
            let weight = l.weight_bits.map_or(String::new(), |b| b.to_string());
            let name: String = l.name.chars().take(34).collect();
            writeln!(
                f,
                "{:>4} {:<34} {:<9} {:<16} {:>5} {:>4} {:>3} {:>8.1} {:>10.2e} {:>10.2e} {:>11}",
                l.node,
                name,
                l.op,
                shape,
                l.width,
                l.frac_bits,
                weight,
                l.headroom_bits,
                l.max_error,
                l.mean_error,
                l.comparisons
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for RingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (linear, compared) = self.widths();
        writeln!(f, "model        {}", self.model)?;
        writeln!(f, "calibration  {}", self.calibration)?;
        writeln!(f, "scales       {}", self.scheme)?;
        writeln!(
            f,
            "rings        linear layers {} to {} bits, compared {} to {} bits",
            linear[0], linear[1], compared[0], compared[1]
        )?;
        let error =
            format!("output error {:.3} % of the range (truncation errors simulated)", 100.0 * self.output_error);
        match self.expected {
            Some(Expected { share, interval: [low, high] }) => writeln!(
                f,
                "agreement    {:.2} % of inputs are expected to get the float network's class (95 %: {:.1} to {:.1} %), by the margins of {} samples \
                 that the search did not go by; {error}",
                100.0 * share,
                100.0 * low,
                100.0 * high,
                self.samples.held_out
            )?,
            None => writeln!(
                f,
                "agreement    nothing is promised: all {} samples were used by the search, {error}",
                self.samples.searched
            )?,
        }
        if let Some(OutputErrors { expected, bound, .. }) = self.errors {
            let bound = bound.map_or_else(
                || "nothing useful is proven for every input".into(),
                |bound| format!("at most {bound:.3e} from the model in the clear is proven"),
            );
            writeln!(f, "errors       {expected:.3e} is expected (root mean square, real units); {bound}")?;
        }
        writeln!(f, "input        in steps of {:.3e}: values below half of one count as zero", self.input_step)?;
        self.trade_off(f)?;
        self.overflow(f)?;
        let c = &self.comparisons;
        writeln!(
            f,
            "comparisons  {} (ReLU {}, max pool {}, arg max {}, widen {})",
            c.total(),
            c.relu,
            c.max_pool,
            c.arg_max,
            c.widen
        )?;
        writeln!(f, "size         {} multiplications, {} parameters", self.macs, self.parameters)?;
        for note in &self.notes {
            writeln!(f, "rewritten    {note}")?;
        }
        for warning in &self.warnings {
            writeln!(f, "WARNING      {warning}")?;
        }
        self.table(f)
    }
}
