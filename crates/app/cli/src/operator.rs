//! A server's control interface, for operators' commands.
#![allow(missing_docs, reason = "serve/src/control/openapi.json describes these fields")]

use serde::{Deserialize, Serialize};
use std::time::Duration;
use tacit_client::Control;
use tacit_program::args::ServerArgs;

#[derive(clap::Args)]
pub struct Operator {
    #[command(flatten)]
    server: ServerArgs,
    /// Seconds that the server's answer may take
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    #[arg(help_heading = "Limits")]
    timeout: u64,
}

impl Operator {
    /// Returns the interface, without connecting yet.
    pub fn interface(&self) -> anyhow::Result<Control> {
        let ServerArgs { server, server_name, .. } = &self.server;
        let timeout = Duration::from_secs(self.timeout);
        Ok(Control::new(server, &self.server.identity()?, server_name.as_deref(), timeout)?)
    }
}

/// The part of `/v1/status` that operators see; fields that the server omits are zero or empty.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Status {
    pub version: String,
    pub uptime_s: f64,
    pub stopping: bool,
    pub policy: String,
    pub capacity: Amounts,
    pub used: Amounts,
    pub queues: Queues,
    pub jobs: Vec<Job>,
    pub clients: Vec<Client>,
    pub models: Vec<Model>,
    pub pools: Vec<Pool>,
    pub profile: Vec<Profile>,
    pub mean_delay_s: f64,
    pub mean_waiting_s: f64,
    pub throughput_per_s: f64,
    pub connections: usize,
    pub control_connections: usize,
    pub greetings: usize,
    pub greeting_places: usize,
    pub refusals: u64,
    pub certificates: Vec<Certificate>,
    /// The row of the asking client, if a client asks: besides it, a client sees only version and
    /// time.
    pub client: Option<Client>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Certificate {
    pub advice: Option<String>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Amounts {
    pub cores: u64,
    pub memory: u64,
    pub disk: u64,
    /// Materials that dealers may make at a time.
    pub dealings: u64,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Queues {
    pub pre: u64,
    pub waiting: u64,
    pub transit: u64,
    pub ready: u64,
    pub running_pre: u64,
    pub running_on: u64,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Job {
    pub id: u64,
    pub phase: String,
    pub model: String,
    pub backend: String,
    pub client: String,
    pub client_name: String,
    pub threads: u64,
    pub known_s: f64,
    pub queued_s: f64,
    pub started_s: f64,
    pub ended_s: Option<f64>,
    pub outcome: Option<String>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Client {
    pub client: String,
    pub client_name: String,
    pub connections: u64,
    pub requests: u64,
    pub done: u64,
    pub failed: u64,
    pub refused: u64,
    pub queued: u64,
    pub inputs: u64,
    pub mean_delay_s: f64,
    pub mean_waiting_s: f64,
    pub throughput_per_s: f64,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Model {
    pub name: String,
    pub backends: Vec<String>,
    pub done: u64,
    pub mean_delay_s: f64,
    pub mean_waiting_s: f64,
    pub throughput_per_s: f64,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Pool {
    pub model: String,
    pub backend: String,
    pub inputs: u32,
    pub ready: u64,
    pub dealing: u64,
    pub bytes: u64,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Profile {
    pub model: String,
    pub backend: String,
    pub phase: String,
    pub device: String,
    pub jobs: u64,
    pub expected_s: f64,
    pub measured_s: f64,
    pub error_median: f64,
    pub error_p95: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    /// Returns the names of a value's fields.
    fn names(value: &Value) -> BTreeSet<&str> {
        value.as_object().expect("it is an object").keys().map(String::as_str).collect()
    }

    fn document<T: Default + Serialize>() -> Value {
        serde_json::to_value(T::default()).expect("plain data")
    }

    #[test]
    fn shown_fields_are_in_the_servers_description() {
        // A test of the server checks the same file against the server's answers.
        let described: Value =
            serde_json::from_str(include_str!("../../../service/serve/src/control/openapi.json")).expect("it is JSON");
        let status = Status { client: Some(Client::default()), ..Status::default() };
        for (schemas, documents) in [
            (&["Snapshot", "OwnStatus"][..], serde_json::to_value(status).expect("plain data")),
            (&["Amounts"], document::<Amounts>()),
            (&["Queues"], document::<Queues>()),
            (&["Job"], document::<Job>()),
            (&["Client"], document::<Client>()),
            (&["Model"], document::<Model>()),
            (&["Pool"], document::<Pool>()),
            (&["Profile"], document::<Profile>()),
            (&["Certificate"], document::<Certificate>()),
        ] {
            let properties = schemas.iter().map(|name| &described["components"]["schemas"][name]["properties"]);
            let documented: BTreeSet<&str> = properties.flat_map(names).collect();
            let unknown: Vec<&str> = names(&documents).difference(&documented).copied().collect();
            assert!(unknown.is_empty(), "{schemas:?} has no {unknown:?}");
        }
    }
}
