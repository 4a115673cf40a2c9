//! The planner chooses back end, number of threads and link for a user's goal.
//!
//! A plan has three inputs. The **costs** that a back end declares of a lowered model
//! ([`tacit_backends::Costs`]: bytes, exchanges, counts of primitives, memory). A **calibration**:
//! the time of each primitive at either party, fitted to measured runs of small networks
//! ([`calibration`]). **Devices** and a **link** ([`device`], [`link`]). From these follow latency,
//! bytes, processor time, energy and memory of each phase ([`predict`]). From the predictions
//! follows a ranking with its reasons ([`rank`], [`change`]).

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
pub use rank::{Choice, Goal, LOCAL, Limits, Offer, Prices, Question, Usage};
pub use work::ClientWork;
