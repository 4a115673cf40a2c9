//! The dealer of a cell, for back ends whose material comes from a dealer: a process of its own
//! with its own CA, as for a real third party.
use super::program::Program;
use anyhow::Context;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use tacit_backends::ConnectionResources;
use tacit_experiments::experiment::Scratch;
use tacit_ids::ClientId;
use tacit_store::keys;

/// A running dealer; killed when dropped.
pub struct Dealer {
    program: Program,
    pin: ClientId,
    keys: PathBuf,
}

fn folder(scratch: &Scratch) -> PathBuf {
    scratch.path().join("dealing")
}

/// Makes the keys of a dealer, and keys for clients with these names.
pub fn make_keys(scratch: &Scratch, clients: &[String]) -> anyhow::Result<()> {
    let folder = folder(scratch);
    if folder.exists() {
        fs::remove_dir_all(&folder).context("removing a dealer's earlier keys")?;
    }
    keys::init(&folder, &[], clients)?;
    Ok(keys::add_dealer(&folder, &[])?)
}

impl Dealer {
    pub fn start(core: Option<usize>, log: &Path, scratch: &Scratch) -> anyhow::Result<Self> {
        let keys = folder(scratch);
        let mut arguments: Vec<OsString> = Vec::new();
        for (option, path) in [("--keys", keys.clone()), ("--numbers", scratch.path().join("dealer.sqlite"))] {
            arguments.extend([option.into(), path.into()]);
        }
        let program = Program::start("tacit-dealer", arguments, core, log, scratch)?;
        Ok(Self { program, pin: keys::dealer_pin(&keys)?, keys })
    }

    pub fn pid(&self) -> u32 {
        self.program.pid()
    }

    pub fn arguments(&self) -> Vec<OsString> {
        let words = ["--dealer", &self.program.address, "--dealer-pin", &self.pin.to_string(), "--dealer-keys"];
        words.into_iter().map(OsString::from).chain([self.keys.clone().into()]).collect()
    }

    pub fn resources(&self, client: &str) -> anyhow::Result<ConnectionResources> {
        let identity = keys::load_client(&self.keys, client)?;
        Ok(tacit_client::resources(Some((&self.program.address, self.pin)), &identity, None)?)
    }
}
