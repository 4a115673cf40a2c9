//! Errors that say why no choice of options holds for a network, and what would help.

use tacit_graph::FloatGraph;
use tacit_graph::float::FloatOp;

use super::judge::Judged;
use super::options::{Domain, NAME, Options};
use tacit_backend_api::BackendError;

/// A choice that does not hold, with its verdict.
pub(super) struct FailedChoice {
    pub options: Options,
    pub judged: Judged,
}

pub(super) const MAX_OFF: f64 = 0.05;
/// Output error, as a share of the range, from which on outputs are useless.
const WORTHLESS_ERROR: f64 = 0.5;
/// Larger shares are not shown in digits.
const MAX_SHOWN: f64 = 10.0;

const HINT: &str = "`-O domain=calibrated` takes the ranges that samples have in place of those that hold for all accepted inputs: others may \
                    then get a wrong answer that nobody notices";

/// Adds [`HINT`] unless the operator is no function.
pub(super) fn add_hint(error: BackendError, graph: &FloatGraph) -> BackendError {
    match error {
        BackendError::Option { backend, key, what } => {
            BackendError::Option { backend, key, what: format!("{what}. {HINT}") }
        }
        BackendError::Unsupported { node, name, op, what } if is_function(&graph.nodes[node].op) => {
            BackendError::Unsupported { node, name, op, what: format!("{what}. {HINT}") }
        }
        error => error,
    }
}

pub(super) fn is_function(op: &FloatOp) -> bool {
    matches!(op, FloatOp::Relu | FloatOp::Function(_))
}

pub(super) fn uncertain(domain: Domain) -> BackendError {
    let what = match domain {
        Domain::Calibrated => {
            "the best class alone is told, so no client sees that an input left a range, and some that the model accepts do: tell all \
             outputs, accept a narrower range (`--range`), or take `cheetah` or `dealt`"
        }
        _ => {
            "no ranges hold for certain, for all inputs that the model accepts: intervals through its layers become too wide. Accept a \
             narrower range (`--range`), make the network less deep, or take `cheetah` or `dealt`"
        }
    };
    BackendError::Option { backend: NAME, key: "domain".into(), what: what.into() }
}

/// Says why the best choice does not hold, and what would help.
pub(super) fn refusal(FailedChoice { options, judged }: &FailedChoice) -> BackendError {
    let min_agreement = options.agreement;
    let samples = if judged.samples.held_out > 0 { "samples held out" } else { "samples" };
    let Judged { output_error, tried, .. } = judged;
    let what = if !options.tolerates(judged.wrong()) {
        let inputs: usize = tried.iter().map(|tried| tried.inputs).sum();
        format!(
            "{0} of {inputs} inputs that the model accepts would get a wrong answer that no client notices. Accept a narrower range \
             (`--range`), calibrate with inputs from all of it, or take `cheetah` or `dealt`; `-O unnoticed={0}` serves it and says so",
            judged.wrong()
        )
    } else {
        let agreement = judged.agreement.map_or(1.0, |share| share.min(judged.expected.map_or(1.0, |e| e.share)));
        let share = (100.0 * agreement).floor() / 100.0;
        let fewer = match (*output_error <= WORTHLESS_ERROR, agreement < min_agreement) {
            (false, _) => {
                "where features differ much in size, normalise each of them at the start of the network; ".into()
            }
            (true, true) => format!("`--agreement {share}` asks for what it has; "),
            (true, false) => "`--agreement 0` serves it as it is; ".into(),
        };
        let which = match options.domain {
            Domain::Accepted => "the best polynomials that hold for all that is accepted",
            _ => "the best polynomials",
        };
        format!(
            "{} of inputs are asked to get the float network's class with outputs off by {} of their range at most; {which} \
             give {} and {} on {} {samples}. More calibration samples may show better; {fewer}a network trained with polynomials in \
             place of ReLU loses nothing; `cheetah` and `dealt` compute it exactly",
            percent(min_agreement),
            percent(MAX_OFF),
            percent(agreement),
            percent(*output_error),
            tried[0].inputs,
        )
    };
    BackendError::Option { backend: NAME, key: "agreement".into(), what }
}

fn percent(share: f64) -> String {
    match share > MAX_SHOWN {
        true => format!("more than {:.0} %", 100.0 * MAX_SHOWN),
        false => format!("{:.2} %", 100.0 * share),
    }
}

#[cfg(test)]
mod tests {
    use tacit_graph::geometry::Window;

    use super::*;
    use crate::judge::TrialCounts;
    use tacit_ring::lowering::report::Samples;

    #[test]
    fn wrong_answers_need_unnoticed_option() {
        let tried = |wrong: usize| TrialCounts { inputs: 20, wrong, ..TrialCounts::default() };
        let judged = Judged {
            samples: Samples { searched: 16, held_out: 20 },
            agreement: Some(1.0),
            expected: None,
            output_error: 0.0,
            max_deviation: 0.0,
            tried: [tried(0), tried(1), tried(1)],
        };
        let fallen = FailedChoice { options: Options::default(), judged };
        let text = refusal(&fallen).to_string();
        assert!(text.contains("2 of 60 inputs"), "{text}");
        assert!(text.contains("`-O unnoticed=2` serves it"), "{text}");
        let borne = |unnoticed: u32| Options { unnoticed, ..Options::default() }.tolerates(fallen.judged.wrong());
        assert_eq!([0, 1, 2].map(borne), [false, false, true]);
    }

    #[test]
    fn hint_names_calibrated_domain_for_functions_only() {
        let mut graph = FloatGraph::new("x", vec![1, 4, 4]).unwrap();
        let relu = graph.push("relu", FloatOp::Relu, &[0], &[]).unwrap();
        let window = Window { kernel: [2, 2], stride: [2, 2], pads: [0, 0, 0, 0] };
        let pool = graph.push("pool", FloatOp::MaxPool(window), &[relu], &[]).unwrap();
        let message = |node: usize, op| {
            let error = BackendError::Unsupported { node, name: "it".into(), op, what: "no".into() };
            add_hint(error, &graph).to_string()
        };
        assert!(message(relu, "Relu").contains("domain=calibrated"));
        assert!(message(pool, "MaxPool").ends_with(": no"));
        assert!(add_hint(uncertain(Domain::Auto), &graph).to_string().contains("domain=calibrated"));
    }
}
