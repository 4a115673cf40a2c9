//! The interface between back ends and the rest of the system.
//!
//! [`seam`] defines the interface of a back end, [`Costs`] and [`Numerics`] its two accounts.
//! [`lowered`] stores lowerings in files, [`check`](mod@check) judges a lowered model, [`classes`] compares
//! answers.
#![forbid(unsafe_code)]

pub mod check;
pub mod classes;
mod cost;
mod error;
pub mod lowered;
mod numerics;
mod resolution;
pub mod seam;

pub use cost::{Costs, DealingCost, PartyCost, PhaseCost, Work};
pub use error::{BackendError, Result};
pub use numerics::Numerics;
pub use resolution::FaintInput;
pub use seam::{
    Backend, Benchmarks, ClientModel, ClientSide, ConnectionResources, DryRun, LoweringReport, Material, MaterialPart,
    Options, Plan, Preparation, ServerModel, ServerSide, Setup, Strain, Support, Trust,
};
pub use tacit_mpc::Role;
pub use tacit_net::Sides;
