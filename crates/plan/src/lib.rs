//! The planner: which back end, with how many threads, over which link, for what a user wants.
//!
//! Everything is computed from three things. The **costs** that a back end declares of a lowered model
//! ([`tacit_backends::Costs`]: bytes, exchanges, counts of primitives, memory). A **calibration**: what a
//! primitive takes at either party, fitted to measured runs of small networks ([`calibration`]). And
//! **devices** and a **link** ([`device`], [`link`]). From these follow latency, bytes, processor time,
//! energy and memory of each phase ([`predict`]), and from those a ranking with its reasons ([`rank`],
//! [`change`]).

#![forbid(unsafe_code)]

pub mod calibration;
pub mod change;
pub mod checked;
pub mod counts;
pub mod device;
mod error;
mod fit;
pub mod link;
mod observed;
pub mod predict;
pub mod rank;
pub mod work;

pub use calibration::Calibration;
pub use checked::Checked;
pub use counts::Primitive;
pub use device::Device;
pub use error::PlanError;
pub use link::Link;
pub use observed::{Observation, Observed, SeenLink};
pub use predict::{Prediction, Setting};
pub use rank::{Choice, Goal, Limits, Offer, Prices, Question, Usage};
pub use work::ClientWork;
