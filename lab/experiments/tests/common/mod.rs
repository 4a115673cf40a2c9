//! Emulated links for tests.
use tacit_experiments::LabError;
use tacit_experiments::link::Link;
use tacit_net::link::{LinkSpec, LinkSpecText};

/// Sets up a link; `None`, with a note on standard error, where the machine does not allow links.
pub fn link_or_skip(test: &str, text: &LinkSpecText) -> Option<Link> {
    match Link::up(&LinkSpec::parse(text).unwrap()) {
        Err(error @ LabError::Unavailable { .. }) => {
            eprintln!("SKIPPED {test}: {error}");
            None
        }
        link => Some(link.unwrap()),
    }
}
