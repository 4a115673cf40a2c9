//! The option for a client's own share of the work, for every command that chooses a back end.
use tacit_plan::{ClientWork, Limits};

/// How much of the work is the client's.
#[derive(clap::Args, Clone, Copy, Default)]
pub struct WorkArgs {
    /// Share of the work that the client does: min (the least possible), balanced (at most twice
    /// the least), any
    #[arg(long, value_name = "WORK", help_heading = "Limits")]
    pub client_work: Option<ClientWork>,
    /// Most joules above idle that an input costs the client, as the planner predicts
    #[arg(long, value_name = "JOULES", value_parser = budget, help_heading = "Limits", hide_short_help = true)]
    client_joules: Option<f64>,
    /// Most processor seconds that an input costs the client, as the planner predicts
    #[arg(long, value_name = "SECONDS", value_parser = budget, help_heading = "Limits", hide_short_help = true)]
    client_cpu_s: Option<f64>,
}

impl WorkArgs {
    /// Whether any of these options was given.
    pub fn is_asked(&self) -> bool {
        self.client_work.is_some() || self.client_joules.is_some() || self.client_cpu_s.is_some()
    }

    /// Returns the wish; `any` if only a budget was given.
    pub fn wish(&self) -> ClientWork {
        self.client_work.unwrap_or(ClientWork::Any)
    }

    pub fn add_budget(&self, limits: Limits) -> Limits {
        Limits { client_j: self.client_joules, client_cpu_s: self.client_cpu_s, ..limits }
    }
}

fn budget(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(amount) if (0.0..=1e9).contains(&amount) && amount > 0.0 => Ok(amount),
        _ => Err("a number above 0, at most 10^9".into()),
    }
}
