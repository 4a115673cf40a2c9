//! Enforcement of the access rules: what the driver checks before it admits a request.
use crate::accept::access::{REVOKED, Rules};
use crate::accept::identity::CertificateIdentity;
use crate::accept::refusal_reasons::OVER_RATE;
use crate::jobs::quota::{Bucket, Clock, PaidStock, QuotaCharge, Quotas};
use crate::models::catalog::Offered;
use crate::{Catalog, ServeError};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;
use tacit_client::wire::Request;
use tacit_ids::{ClientId, MaterialId};
use tacit_store::{Ended, Entry, Store, StoreError};
use tokio::sync::watch;

pub(crate) const WITHDRAWN: &str = "the model that is open here was replaced or withdrawn by whoever runs this server; connect again for what it offers now";
/// Number of buckets above which full ones are dropped.
const MAX_BUCKETS: usize = 1024;

/// The access rules, and what clients have used of their limits.
pub(crate) struct Gate {
    /// The current rules, which all may read; only the driver changes them.
    rules: watch::Sender<Arc<Rules>>,
    catalog: watch::Sender<Arc<Catalog>>,
    buckets: HashMap<ClientId, Bucket>,
    stock: PaidStock,
    quotas: Quotas,
    clock: Clock,
}

impl Gate {
    pub(crate) fn new(rules: watch::Sender<Arc<Rules>>, catalog: watch::Sender<Arc<Catalog>>, quotas: Quotas) -> Self {
        Self { rules, catalog, buckets: HashMap::new(), stock: PaidStock::default(), quotas, clock: Clock::new() }
    }

    pub(crate) fn set_rules(&mut self, rules: Arc<Rules>) {
        self.rules.send_replace(rules);
    }

    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.borrow())
    }

    pub(crate) fn set_catalog(&mut self, catalog: Arc<Catalog>) {
        self.catalog.send_replace(catalog);
    }

    pub(crate) fn rules(&self) -> watch::Receiver<Arc<Rules>> {
        self.rules.subscribe()
    }

    pub(crate) fn is_revoked(&self, client: ClientId) -> bool {
        self.rules.borrow().rule_for(client).revoked
    }

    pub(crate) fn reason_to_refuse(&self, identity: &CertificateIdentity) -> Option<&'static str> {
        self.rules.borrow().reason_to_refuse(identity)
    }

    /// Checks whether the rules allow a client's request, for the model that it has open.
    pub(crate) fn check(
        &mut self,
        client: ClientId,
        request: &Request,
        offered: Option<&Arc<Offered>>,
    ) -> Result<(), ServeError> {
        let rule = self.rules.borrow().rule_for(client).clone();
        if rule.revoked {
            return Err(ServeError::NotGranted(REVOKED.into()));
        }
        let is_of_model = request.is_phase()
            || matches!(request, Request::Ask(_) | Request::Setup | Request::Announce(_) | Request::Call { .. });
        let Some(offered) = offered.filter(|_| is_of_model) else { return Ok(()) };
        if !self.catalog.borrow().is_offered(offered) {
            return Err(ServeError::NotGranted(WITHDRAWN.into()));
        }
        let model = offered.name.as_str();
        if !rule.allows(model, offered.reveals_class_alone()) {
            return Err(ServeError::NotGranted(format!("model `{model}` is no longer offered to you")));
        }
        // Refused here, a client keeps the material that it would claim next.
        let inputs = match request {
            Request::Ask(_) => Some(offered.batch()),
            Request::Call { inputs } => Some(*inputs),
            _ => None,
        };
        if let (Some(inputs), Some(per_day)) = (inputs, rule.per_day) {
            self.quotas.check_fits(self.clock.now(), client, model, inputs, per_day)?;
        }
        Ok(())
    }

    /// Takes a token per input if the client has a rate. Returns how many were taken.
    pub(crate) fn take_tokens(&mut self, client: ClientId, inputs: u32, now: Instant) -> Result<u32, ServeError> {
        let Some(per_minute) = self.rules.borrow().rule_for(client).per_minute else { return Ok(0) };
        if self.buckets.len() >= MAX_BUCKETS && !self.buckets.contains_key(&client) {
            let rules = self.rules.borrow().clone();
            self.buckets.retain(|client, bucket| {
                rules.rule_for(*client).per_minute.is_some_and(|per_minute| !bucket.is_full(now, per_minute))
            });
        }
        let bucket = self.buckets.entry(client).or_insert_with(|| Bucket::full(now, per_minute));
        bucket.take(now, per_minute, inputs).map(|()| inputs).map_err(|wait| {
            let again_s = wait.as_secs() + 1;
            let reason = format!(
                "more than {per_minute} requests within a minute, which is your rate; ask again in {again_s} s"
            );
            ServeError::OverLimit { kind: OVER_RATE, reason, again_s }
        })
    }

    pub(crate) fn give_tokens_back(&mut self, client: ClientId, tokens: u32) {
        if let Some(bucket) = self.buckets.get_mut(&client) {
            bucket.give_back(tokens);
        }
    }

    /// Whether a request uses stock that was paid for when it was made.
    pub(crate) fn is_paid(&self, client: ClientId, request: &Request) -> bool {
        stock_of(request).is_some_and(|id| self.stock.holds(client, id))
    }

    /// Stock that an admitted request makes is paid for; stock that it uses pays for no other
    /// request.
    pub(crate) fn record_paid(&mut self, client: ClientId, request: &Request) {
        if let Request::Prepare { id, of: None, .. } | Request::Refill { id, .. } = request {
            self.stock.insert(client, *id);
        } else if let Some(id) = stock_of(request) {
            self.stock.remove(client, id);
        }
    }

    pub(crate) fn charge(&mut self, client: ClientId, offered: &Offered) -> Result<Option<QuotaCharge>, ServeError> {
        let per_day = self.rules.borrow().rule_for(client).per_day;
        let now = self.clock.now();
        per_day.map(|per_day| self.quotas.take(now, client, &offered.name, offered.batch(), per_day)).transpose()
    }

    /// Returns how much stock is useful to a client: no more than its answers left today.
    pub(crate) fn useful_stock(&mut self, client: ClientId, model: &str, wanted: u32) -> u32 {
        let per_day = self.rules.borrow().rule_for(client).per_day;
        let now = self.clock.now();
        per_day.map_or(wanted, |day| wanted.min(self.quotas.remaining(now, client, model, day)))
    }

    pub(crate) fn give_back(&mut self, charge: Option<QuotaCharge>) {
        charge.iter().for_each(|charge| self.quotas.give_back(charge));
    }
}

fn stock_of(request: &Request) -> Option<MaterialId> {
    match request {
        Request::Ask(ask) => ask.material,
        Request::Infer { id, of: None } => *id,
        _ => None,
    }
}

/// Destroys uploads and material of revoked clients, and material that revoked helpers made.
/// Returns how many materials were burnt.
pub(crate) fn burn_revoked(store: &Store, is_revoked: impl Fn(ClientId) -> bool) -> Result<usize, StoreError> {
    let mut uploads = store.uploads()?;
    uploads.retain(|upload| is_revoked(upload.client));
    store.end_uploads(&uploads, Ended::Deleted)?;
    burn_matching(store, |entry| is_revoked(entry.binding.client) || entry.maker.is_some_and(&is_revoked))
}

pub(crate) fn burn_matching(store: &Store, is_burnt: impl Fn(&Entry) -> bool) -> Result<usize, StoreError> {
    let mut by_client = BTreeMap::<ClientId, Vec<MaterialId>>::new();
    for entry in store.list(None)?.into_iter().filter(is_burnt) {
        by_client.entry(entry.binding.client).or_default().push(entry.id);
    }
    let mut burnt = 0;
    for (client, ids) in by_client {
        burnt += store.discard(&ids, Some(client))?.len();
    }
    Ok(burnt)
}
