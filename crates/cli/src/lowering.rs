//! What commands that lower a model have in common.
use crate::owner::SealArgs;
use tacit_backends::{DEFAULT, Options};

/// What a model is lowered for, and where the key of its files is: as every command takes them that lowers
/// one.
#[derive(clap::Args, Clone)]
pub struct Lowering {
    /// Back end to lower the model for
    #[arg(long, default_value = DEFAULT)]
    pub backend: String,
    /// Option of the back end, e.g. frac_bits=12; may be repeated
    #[arg(short = 'O', long = "option", value_name = "KEY=VALUE,...")]
    options: Vec<String>,
    /// Share of inputs that should get the float network's class, as calibration samples tell: option
    /// `agreement` [0.99]
    #[arg(long, value_name = "SHARE")]
    agreement: Option<f64>,
    #[command(flatten)]
    pub seal: SealArgs,
}

impl Lowering {
    /// A back end with its default options.
    pub fn of(backend: &str) -> Self {
        Self { backend: backend.to_owned(), options: Vec::new(), agreement: None, seal: SealArgs::default() }
    }

    /// The options, those on the right win.
    pub fn options(&self) -> anyhow::Result<Options> {
        let mut options: Options = self.options.join(",").parse()?;
        if let Some(share) = self.agreement {
            options.set("agreement", share);
        }
        Ok(options)
    }

    /// The options, if any were given.
    pub fn given_options(&self) -> anyhow::Result<Option<Options>> {
        let given = !self.options.is_empty() || self.agreement.is_some();
        given.then(|| self.options()).transpose()
    }
}
