//! State that all connections share, and their channel to the driver.
use crate::accept::access::Rules;
use crate::jobs::event::Event;
use crate::models::source::AskReload;
use crate::ops::metrics::Metrics;
use crate::ops::snapshot::CertificateRow;
use crate::ops::state::Usage;
use crate::{Catalog, ServerConfig};
use std::net::IpAddr;
use std::sync::Arc;
use tacit_admission::{Admission, Limits, PoolLimits, Refusal, RefusalReason};
use tacit_client::measure::Marks;
use tacit_ids::ClientId;
use tacit_net::ServerTls;
use tacit_store::Store;
use tacit_store::keys::Validity;
use tokio::sync::mpsc::{Sender, UnboundedSender};
use tokio::sync::{oneshot, watch};
use tokio_rustls::rustls;

/// Pools of authenticated connections: of the protocol, of the control interface, and of operators
/// there, whom clients cannot crowd out.
pub(crate) const CLIENT_POOL: usize = 0;
pub(crate) const CONTROL_POOL: usize = 1;
pub(crate) const OPERATOR_POOL: usize = 2;

pub(crate) fn limits(config: &ServerConfig, handshakes: usize) -> Limits {
    let per_peer = config.max_connections_per_client();
    let clients = PoolLimits { connections: config.max_connections, per_peer };
    let control = PoolLimits { connections: config.max_control, per_peer: config.control_per_client };
    let handshake_timeout = config.greeting_timeout;
    Limits { handshakes, handshake_timeout, pools: vec![clients, control, control] }
}

/// TLS for new connections, replaced when certificates are reloaded.
pub(crate) struct ServingTls {
    pub(crate) config: Arc<rustls::ServerConfig>,
    /// Name and validity of each certificate whose validity can be read.
    validity: Vec<(&'static str, Validity)>,
}

impl ServingTls {
    pub(crate) fn new(identity: &ServerTls, max_control: usize) -> Self {
        let config = if max_control > 0 { identity.with_http() } else { identity.without_http() };
        let certificates = [("server", identity.certificate()), ("ca", identity.authority())];
        let validity =
            certificates.into_iter().filter_map(|(name, der)| Some((name, Validity::from_certificate(der)?)));
        Self { config, validity: validity.collect() }
    }

    /// Expiry of the certificates, and advice about them.
    pub(crate) fn certificates(&self) -> Vec<CertificateRow> {
        let rows = self.validity.iter().map(|&(name, validity)| CertificateRow {
            name,
            expires_s: validity.until,
            // No advice if the clock shows a time before 1970.
            advice: validity.advice(name).ok().flatten(),
        });
        rows.collect()
    }
}

pub(crate) struct Shared {
    pub(crate) config: ServerConfig,
    pub(crate) catalog: watch::Receiver<Arc<Catalog>>,
    pub(crate) store: Option<Arc<Store>>,
    pub(crate) marks: Marks,
    pub(crate) rules: watch::Receiver<Arc<Rules>>,
    /// Counts of answers on disk; `None` without a folder, where only the driver counts.
    pub(crate) usage: Option<Usage>,
    pub(crate) tls: watch::Sender<ServingTls>,
    pub(crate) admission: Admission,
    pub(crate) reloads: Sender<AskReload>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) events: UnboundedSender<Event>,
}

impl Shared {
    pub(crate) fn allows(&self, client: ClientId, model: &str) -> bool {
        self.rules.borrow().rule_for(client).allows(model, self.catalog().reveals_class_alone(model))
    }

    /// The largest batch that fits a client's rate and its quota of a day, as each input counts.
    pub(crate) fn max_inputs(&self, client: ClientId) -> usize {
        let rules = self.rules.borrow();
        let rule = rules.rule_for(client);
        let by_rate = rule.per_minute.map_or(u32::MAX, |rate| rate.get());
        let by_quota = rule.per_day.unwrap_or(u32::MAX);
        self.config.max_batch.min(by_rate.min(by_quota) as usize).max(1)
    }

    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.borrow())
    }

    pub(crate) fn tls(&self) -> Arc<rustls::ServerConfig> {
        Arc::clone(&self.tls.borrow().config)
    }

    /// Tells the driver, unless it has ended: then nobody needs the event.
    pub(crate) fn tell(&self, event: Event) {
        let _ = self.events.send(event);
    }

    /// Asks the driver; `None` if it has ended.
    pub(crate) async fn ask<T>(&self, event: impl FnOnce(oneshot::Sender<T>) -> Event) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        // If the driver has ended, the request is dropped and the answer fails.
        self.tell(event(reply));
        answer.await.ok()
    }

    pub(crate) fn count_refusal(&self, kind: RefusalReason, address: Option<IpAddr>, detail: String) {
        self.admission.count_refusal(Refusal { kind, from: address, detail });
    }
}
