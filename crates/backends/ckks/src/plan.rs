use std::ops::Deref;

use tacit_graph::{Model, Watch};
use tacit_he::ckks::Bootstrapper;

use super::derive::SentKeys;
use super::emit::Samples;
use super::key_requirements::Draft;
use super::levelled_program::{Emitted, Frame};
use super::noise;
use super::options::Options;
use super::public::Public;
use tacit_backend_api::{BackendError, Result};

/// Everything that the server runs a network with, for one choice of rotations.
pub(super) struct Plan {
    pub public: Public,
    pub options: Options,
    pub bootstrapper: Option<Bootstrapper>,
    /// Deviation of the error that each vector's own step adds.
    pub noise: Vec<f64>,
    pub sent: SentKeys,
    frame: Frame,
}

impl Deref for Plan {
    type Target = Frame;

    fn deref(&self) -> &Frame {
        &self.frame
    }
}

/// Largest deviation of a result's slots: beyond, answers are noise.
const MAX_DEVIATION: f64 = 1.0 / 64.0;

/// Plans a model with options that [`settle`](super::settle::settle) has chosen.
///
/// # Errors
/// A node that cannot be lowered, or a network that no secure parameters hold.
pub(super) fn plan(model: &Model, options: &Options, approximation_error: f64, watch: &Watch) -> Result<Plan> {
    let emitted = Emitted::new(model, options, Samples::All, watch)?;
    plan_of(model, &emitted, options, approximation_error, watch)
}

/// Plans an emitted program. `approximation_error` is the error of the answers that comes from polynomials in
/// place of functions, as a share of the outputs' range.
///
/// # Errors
/// A network that no secure parameters hold, or with answers that would be noise.
pub(super) fn plan_of(
    model: &Model,
    emitted: &Emitted,
    options: &Options,
    approximation_error: f64,
    watch: &Watch,
) -> Result<Plan> {
    let frame = emitted.frame(options, None)?;
    watch.tell("making tables of bootstraps", 0, None)?;
    let bootstrapper = frame.bootstrapper(options)?;
    watch.tell("estimating errors", 0, None)?;
    let Frame { program, places, layouts, context, .. } = &frame;
    let noise: Vec<f64> = (0..places.len())
        .map(|id| noise::step_deviation(program, places, layouts, context, bootstrapper.as_ref(), id))
        .collect();
    let deviation = noise::result_deviation(program, &noise, model);
    if deviation.is_nan() || deviation > MAX_DEVIATION {
        let what = "the errors of encrypted arithmetic are as large as the outputs. Where features differ much in size, the largest \
                    hide the others: normalise each of them at the start of the network (Sub and Div by constants, or a \
                    BatchNormalization, are left to the client). `cheetah` and `dealt` compute in fixed point";
        return Err(BackendError::Data { what: what.into() });
    }
    let draft = Draft::new(&frame, options, bootstrapper.as_ref())?;
    let sent = draft.sent()?;
    let public = draft.public(model, deviation, approximation_error, &sent)?;
    let mut plan = Plan { public, options: options.clone(), bootstrapper, noise, sent, frame };
    plan.public.certain = plan.is_certain();
    Ok(plan)
}
