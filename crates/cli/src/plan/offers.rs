//! The model lowered for every back end.
use crate::print;
use serde_json::Value;
use tacit_backends::{BackendError, Options, Registry};
use tacit_graph::Model;
use tacit_plan::{Choice, Offer};

/// Offers, and what there is none for, with the reason.
pub fn of(model: &Model, tries: &[String]) -> anyhow::Result<(Vec<Offer>, Vec<String>)> {
    let registry = Registry::standard();
    let mut tried = vec![Options::default()];
    for text in tries {
        tried.push(text.parse()?);
    }
    let (mut offers, mut refused) = (Vec::new(), Vec::new());
    let (watch, bar) = print::watch();
    for backend in registry.iter() {
        for options in &tried {
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
                // One that does not know an option has none of that to offer.
                Err(BackendError::Option { .. }) if !text.is_empty() => {}
                Err(error) => {
                    let said = format!("{}: {error}", backend.id());
                    // Once, whatever the options.
                    if !refused.contains(&said) {
                        refused.push(said);
                    }
                }
            }
        }
    }
    bar.finish_and_clear();
    // The float network's multiplications are those of any lowering; its bytes are none.
    if let Some(offer) = offers.iter().find(|offer| offer.backend == "clear") {
        let local = Offer {
            backend: "local".into(),
            options: String::new(),
            trust: None,
            costs: offer.costs,
            agreement: Some(1.0),
        };
        offers.push(local);
    }
    Ok((offers, refused))
}

/// The share of inputs that are expected to get the float network's class, where a report says it: by back
/// ends on rings from held-out samples, else as counted on the calibration samples.
fn agreement(report: &Value) -> Option<f64> {
    let counted = || match (report["same_class"][0].as_f64(), report["same_class"][1].as_f64()) {
        (Some(same), Some(all)) if all > 0.0 => Some(same / all),
        _ => None,
    };
    report["expected"]["share"].as_f64().or_else(|| report["agreement"].as_f64()).or_else(counted)
}

/// What a calibration says nothing of.
pub fn without_calibration(offers: &[Offer], ranked: &[Choice]) -> Vec<String> {
    let missing = offers.iter().enumerate().filter(|(at, _)| !ranked.iter().any(|choice| choice.offer == *at));
    missing.map(|(_, offer)| format!("{}: the calibrations in use say nothing of it", offer.backend)).collect()
}
