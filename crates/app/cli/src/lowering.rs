//! Options of all commands that lower a model.
use crate::owner::SealArgs;
use tacit_backends::{DEFAULT, Options};

/// Back end and options of a lowering, and the key of its files, for every command that lowers a
/// model.
#[derive(clap::Args, Clone)]
pub struct Lowering {
    /// Back end to lower the model for
    #[arg(long, default_value = DEFAULT, help_heading = "Model")]
    pub backend: String,
    /// Option of the back end, e.g. frac_bits=12; may be repeated
    #[arg(short = 'O', long = "option", value_name = "KEY=VALUE,...", help_heading = "Model")]
    options: Vec<String>,
    /// Least share of calibration samples that must get the float network's class: option
    /// `agreement` [0.99]
    #[arg(long, value_name = "SHARE", help_heading = "Model")]
    agreement: Option<f64>,
    #[command(flatten, next_help_heading = "Model")]
    #[allow(missing_docs, reason = "a doc comment would be the heading of its options")]
    pub seal: SealArgs,
}

impl Lowering {
    /// Returns the settings for a back end with default options.
    pub fn with_defaults(backend: &str) -> Self {
        Self { backend: backend.to_owned(), options: Vec::new(), agreement: None, seal: SealArgs::default() }
    }

    /// Returns the options; of several values for a key, the last wins.
    pub fn options(&self) -> anyhow::Result<Options> {
        let mut options: Options = self.options.join(",").parse()?;
        if let Some(share) = self.agreement {
            options.set("agreement", share);
        }
        Ok(options)
    }

    /// Returns the options, if any were given.
    pub fn given_options(&self) -> anyhow::Result<Option<Options>> {
        let has_options = !self.options.is_empty() || self.agreement.is_some();
        has_options.then(|| self.options()).transpose()
    }
}
