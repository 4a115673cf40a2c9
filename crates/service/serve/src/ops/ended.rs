//! A phase that has ended or was refused, for the log, the audit and traces.
use crate::ops::metrics::PhaseLabels;
use std::sync::Arc;
use std::time::Duration;
use tacit_client::wire::InputId;
use tacit_ids::ClientId;

pub(crate) struct EndedPhase {
    /// Number of the job since the start.
    pub(crate) job: u64,
    pub(crate) client: ClientId,
    /// The client's name for people; empty if it has none.
    pub(crate) client_name: Arc<str>,
    /// The client's name for the input; `None` for setups and stock.
    pub(crate) input: Option<InputId>,
    pub(crate) labels: PhaseLabels,
    pub(crate) outcome: &'static str,
    /// How its client deviated from the protocol.
    pub(crate) fault: Option<&'static str>,
    /// Time from its request to its end.
    pub(crate) lasted: Duration,
    /// Time from its start to its end, and its threads; `None` if it has not started.
    pub(crate) ran: Option<(Duration, usize)>,
    /// Bytes sent and received.
    pub(crate) traffic: Option<[u64; 2]>,
    /// Most bytes that its threads held, where this was counted.
    pub(crate) memory: Option<u64>,
}

impl EndedPhase {
    pub(crate) fn run_time(&self) -> Option<Duration> {
        self.ran.map(|(time, _)| time)
    }

    pub(crate) fn queued_time(&self) -> Duration {
        self.lasted.saturating_sub(self.run_time().unwrap_or_default())
    }

    /// Logs the end under the input's name, which the client's log shows, too.
    pub(crate) fn log(&self) {
        let Self { client, client_name: name, outcome, .. } = self;
        let input = self.input.map_or_else(|| "none".to_owned(), |name| name.to_string());
        let PhaseLabels { phase, model, backend } = &self.labels;
        let (queued, ran) = (self.queued_time().as_secs_f64(), self.run_time().unwrap_or_default().as_secs_f64());
        tracing::info!(%input, %client, %name, %model, %backend, "{phase} {outcome}: queued {queued:.3} s, ran {ran:.3} s");
    }
}
