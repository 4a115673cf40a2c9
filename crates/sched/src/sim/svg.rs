//! Just enough SVG for the simulator's page.

use std::fmt::Write;

/// Colours that stay apart for colour-blind readers (Okabe and Ito's set).
pub const COLOURS: [&str; 7] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#7f7f7f"];

/// A drawing under construction. Text must be escaped by the caller.
pub struct Svg {
    text: String,
}

impl Svg {
    /// An empty drawing of this size in pixels.
    pub fn new(width: f64, height: f64) -> Svg {
        Svg { text: format!("<svg width=\"{width:.0}\" height=\"{height:.0}\" xmlns=\"http://www.w3.org/2000/svg\">") }
    }

    /// A filled rectangle (x, y, width, height) with a tooltip.
    pub fn rect(&mut self, (x, y, width, height): (f64, f64, f64, f64), fill: &str, opacity: f64, title: &str) {
        let _ = write!(
            self.text,
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" fill=\"{fill}\""
        );
        if opacity < 1.0 {
            let _ = write!(self.text, " fill-opacity=\"{opacity}\"");
        }
        if title.is_empty() {
            self.text.push_str("/>");
        } else {
            let _ = write!(self.text, "><title>{title}</title></rect>");
        }
    }

    /// A thin line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: &str) {
        let _ = write!(
            self.text,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{stroke}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    /// A curve through these points.
    pub fn path(&mut self, points: &[(f64, f64)], stroke: &str) {
        let _ = write!(self.text, "<polyline fill=\"none\" stroke=\"{stroke}\" stroke-width=\"1.4\" points=\"");
        for (x, y) in points {
            let _ = write!(self.text, "{x:.1},{y:.1} ");
        }
        self.text.push_str("\"/>");
    }

    /// A label; `anchor` is `start`, `middle` or `end`.
    pub fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        let _ = write!(self.text, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
    }

    /// The drawing as text.
    pub fn finish(self) -> String {
        self.text + "</svg>"
    }
}

/// About `n` round numbers from 0 to `most`.
pub fn ticks(most: f64, n: usize) -> Vec<f64> {
    let rough = (most / n as f64).max(1e-9);
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|&s| s >= rough).unwrap_or(rough);
    (0..).map(|i| f64::from(i) * step).take_while(|&t| t <= most * 1.0001).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(ticks(100.0, 5), vec![0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(48.0, 6), vec![0.0, 10.0, 20.0, 30.0, 40.0]);
        assert!(ticks(0.0, 4).len() == 1);
    }
}
