//! What all connections have in common, and their way to the driver.
use crate::access::Rules;
use crate::event::Event;
use crate::metrics::Metrics;
use crate::snapshot::CertificateRow;
use crate::source::AskReload;
use crate::state::Usage;
use crate::{Catalog, ServerConfig};
use std::net::IpAddr;
use std::sync::Arc;
use tacit_admission::{Admission, Kind, Limits, PoolLimits, Turned};
use tacit_client::measure::Marks;
use tacit_ids::ClientId;
use tacit_net::ServerTls;
use tacit_store::Store;
use tacit_store::keys::Validity;
use tokio::sync::mpsc::{Sender, UnboundedSender};
use tokio::sync::{oneshot, watch};
use tokio_rustls::rustls;

/// Pools of authenticated connections: of the protocol, of the control interface, and of operators there,
/// whom clients keep out of nothing.
pub(crate) const CLIENTS: usize = 0;
pub(crate) const CONTROL: usize = 1;
pub(crate) const OPERATORS: usize = 2;

/// What may be connected, with so many handshake slots.
pub(crate) fn limits(config: &ServerConfig, handshakes: usize) -> Limits {
    let clients = PoolLimits { connections: config.max_connections, per_peer: config.of_one_client() };
    let control = PoolLimits { connections: config.max_control, per_peer: config.control_per_client };
    let handshake_timeout = config.greeting_timeout;
    Limits { handshakes, handshake_timeout, pools: vec![clients, control, control] }
}

/// What new connections are greeted with.
pub(crate) struct Handshakes {
    pub(crate) config: Arc<rustls::ServerConfig>,
    /// When the certificates in it are valid, by the names of their files, where that can be read.
    validity: Vec<(&'static str, Validity)>,
}

impl Handshakes {
    pub(crate) fn new(identity: &ServerTls, max_control: usize) -> Self {
        let config = if max_control > 0 { identity.with_http() } else { identity.without_http() };
        let certificates = [("server", identity.certificate()), ("ca", identity.authority())];
        let validity = certificates.into_iter().filter_map(|(name, der)| Some((name, Validity::of(der)?)));
        Self { config, validity: validity.collect() }
    }

    /// Until when its certificates are good, and what is to be done about them now.
    pub(crate) fn certificates(&self) -> Vec<CertificateRow> {
        // A clock before 1970 is not theirs to tell.
        let advice = |name, validity: Validity| validity.advice(name).ok().flatten();
        let row = |&(name, validity): &(&'static str, Validity)| CertificateRow {
            name,
            expires_s: validity.until,
            advice: advice(name, validity),
        };
        self.validity.iter().map(row).collect()
    }
}

/// What all connections use.
pub(crate) struct Shared {
    pub(crate) config: ServerConfig,
    /// What is on offer; only the driver changes it.
    pub(crate) catalog: watch::Receiver<Arc<Catalog>>,
    pub(crate) store: Option<Arc<Store>>,
    pub(crate) marks: Marks,
    /// Who may use what; only the driver changes it.
    pub(crate) rules: watch::Receiver<Arc<Rules>>,
    /// Answers that count; without a folder they are counted by the driver alone.
    pub(crate) usage: Option<Usage>,
    /// What is offered in TLS handshakes; only a reload changes it.
    pub(crate) tls: watch::Sender<Handshakes>,
    /// Who is connected, and what is logged of those who are not served.
    pub(crate) admission: Admission,
    /// To whoever looks at files again.
    pub(crate) reloads: Sender<AskReload>,
    pub(crate) metrics: Arc<Metrics>,
    /// To the driver.
    pub(crate) events: UnboundedSender<Event>,
}

impl Shared {
    /// Whether a client may use a model.
    pub(crate) fn allows(&self, client: ClientId, model: &str) -> bool {
        self.rules.borrow().of(client).allows(model, self.catalog().reveals_class_alone(model))
    }

    /// How many inputs a client may have run as one: each counts as a request against its rate, and a day's
    /// quota must do for it.
    pub(crate) fn most_inputs(&self, client: ClientId) -> usize {
        let rules = self.rules.borrow();
        let rule = rules.of(client);
        let by_rate = rule.per_minute.map_or(u32::MAX, |rate| rate.get());
        let by_quota = rule.per_day.unwrap_or(u32::MAX);
        self.config.max_batch.min(by_rate.min(by_quota) as usize).max(1)
    }

    /// What is on offer now.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.borrow())
    }

    /// What TLS handshakes go by that begin now.
    pub(crate) fn tls(&self) -> Arc<rustls::ServerConfig> {
        Arc::clone(&self.tls.borrow().config)
    }

    /// Asks the driver; `None` if it has ended.
    pub(crate) async fn ask<T>(&self, event: impl FnOnce(oneshot::Sender<T>) -> Event) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        // A driver that is gone drops the question, and the answer with it.
        let _ = self.events.send(event(reply));
        answer.await.ok()
    }

    /// Has a refusal counted for the log.
    pub(crate) fn refused(&self, kind: Kind, from: Option<IpAddr>, detail: String) {
        self.admission.refused(Turned { kind, from, detail });
    }
}
