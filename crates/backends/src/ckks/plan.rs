//! Everything that the server runs.

use std::ops::Deref;

use tacit_graph::{Model, Watch};
use tacit_he::ckks::Bootstrapper;

use super::derive::Sent;
use super::draft::Draft;
use super::frame::{Frame, frame};
use super::noise;
use super::options::Options;
use super::public::Public;
use crate::BackendError;

/// A frame with the tables and the public part of one way to make rotations.
pub(super) struct Plan {
    pub public: Public,
    pub options: Options,
    pub bootstrapper: Option<Bootstrapper>,
    /// Deviation that each vector's own step adds.
    pub noise: Vec<f64>,
    /// What the client sends, and what follows from it.
    pub sent: Sent,
    frame: Frame,
}

impl Deref for Plan {
    type Target = Frame;

    fn deref(&self) -> &Frame {
        &self.frame
    }
}

/// Lowers a model.
///
/// # Errors
/// A node that cannot be lowered; a network that no secure parameters hold.
pub(super) fn plan(model: &Model, options: &Options, watch: &Watch) -> Result<Plan, BackendError> {
    let frame = frame(model, options, watch)?;
    watch.tell("making tables of bootstraps", 0, None)?;
    let bootstrapper = frame.bootstrapper(options)?;
    watch.tell("estimating errors", 0, None)?;
    let library = (&*frame.context, bootstrapper.as_ref());
    let noise = noise::of_steps(&frame.program, &frame.places, &frame.layouts, library);
    let deviation = noise::of_result(&frame.program, &noise, model);
    let draft = Draft::new(&frame, options, bootstrapper.as_ref())?;
    let sent = draft.sent()?;
    let public = draft.public(model, deviation, &sent)?;
    Ok(Plan { public, options: options.clone(), bootstrapper, noise, sent, frame })
}
