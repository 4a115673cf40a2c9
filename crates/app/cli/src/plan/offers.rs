//! Lowers the model for every back end.
use crate::print;
use serde_json::Value;
use tacit_backends::{BackendError, LOWER_BOUND, Options, Registry};
use tacit_graph::Model;
use tacit_plan::{Choice, LOCAL, Offer};

/// Returns the offers, and the back ends that refuse the model, with reasons.
pub fn list_offers(model: &Model, option_texts: &[String]) -> anyhow::Result<(Vec<Offer>, Vec<String>)> {
    let registry = Registry::standard();
    let mut option_sets = vec![Options::default()];
    for text in option_texts {
        option_sets.push(text.parse()?);
    }
    let (mut offers, mut refused) = (Vec::new(), Vec::new());
    let (watch, bar) = print::watch();
    for backend in registry.iter() {
        for options in &option_sets {
            bar.set_message(format!("lowering for {}", backend.id()));
            let text = options.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",");
            match backend.lower_watched(model, options, &watch) {
                Ok(lowered) => offers.push(Offer {
                    backend: backend.id().to_owned(),
                    options: text,
                    trust: Some(backend.trust()),
                    costs: lowered.costs(),
                    agreement: lowered.report().and_then(|report| agreement(&report.json())),
                }),
                // A back end that does not know an option has no offer with it.
                Err(BackendError::Option { .. }) if !text.is_empty() => {}
                Err(error) => {
                    let reason = format!("{}: {error}", backend.id());
                    // List the same reason once for all options.
                    if !refused.contains(&reason) {
                        refused.push(reason);
                    }
                }
            }
        }
    }
    bar.finish_and_clear();
    // The client's own computing has the multiplications of any lowering, and sends no bytes.
    if let Some(offer) = offers.iter().find(|offer| offer.backend == LOWER_BOUND) {
        let local = Offer {
            backend: LOCAL.into(),
            options: String::new(),
            trust: None,
            costs: offer.costs,
            agreement: Some(1.0),
        };
        offers.push(local);
    }
    Ok((offers, refused))
}

/// Reads from a report the share of inputs that should get the float network's class. Back ends on
/// rings estimate it from held-out samples; others count on the calibration samples.
fn agreement(report: &Value) -> Option<f64> {
    let share = report["expected"]["share"].as_f64().or_else(|| report["agreement"].as_f64());
    share.or_else(|| share_of_counts(&report["same_class"]))
}

fn share_of_counts(counts: &Value) -> Option<f64> {
    match (counts[0].as_f64(), counts[1].as_f64()) {
        (Some(agreeing), Some(total)) if total > 0.0 => Some(agreeing / total),
        _ => None,
    }
}

pub fn list_uncalibrated(offers: &[Offer], ranked: &[Choice]) -> Vec<String> {
    let missing = offers.iter().enumerate().filter(|(index, _)| !ranked.iter().any(|choice| choice.offer == *index));
    missing.map(|(_, offer)| format!("{}: the calibrations in use say nothing of it", offer.backend)).collect()
}
