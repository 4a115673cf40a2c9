//! When the server is idle, ready connections may run offline phases to fill their clients' stock,
//! where a client's rate of answers makes more stock useful. A client's report of its stock is not
//! trusted: the stock counts as at least the material that was recently made and not used. Clients
//! with few recent turns come first.
use super::{InputOrigin, PendingInput, Queue, Refused};
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use tacit_admission::ConnectionId;
use tacit_ids::ClientId;
use tacit_sched::{JobPhase, ModelId, Owner, Span, Time};

/// Share of cores, dealings and memory that refill jobs may take together: three of four.
const REFILL_SHARE: (u64, u64) = (3, 4);

/// How long turns, and materials made in them, are remembered.
const RECENT_WINDOW: Span = Span::from_millis(600_000);
const MAX_RECENT_EVENTS: usize = 4096;

/// Recent events, counted by owner.
struct RecentEvents<K> {
    order: VecDeque<(Time, K)>,
    counts: HashMap<K, u32>,
}

impl<K> Default for RecentEvents<K> {
    fn default() -> Self {
        Self { order: VecDeque::new(), counts: HashMap::new() }
    }
}

impl<K: Copy + Eq + Hash> RecentEvents<K> {
    fn add(&mut self, now: Time, owner: K) {
        if self.order.len() >= MAX_RECENT_EVENTS {
            self.remove(0);
        }
        self.order.push_back((now, owner));
        *self.counts.entry(owner).or_default() += 1;
    }

    fn forget_before(&mut self, now: Time) {
        while self.order.front().is_some_and(|(time, _)| now.since(*time) > RECENT_WINDOW) {
            self.remove(0);
        }
    }

    fn take(&mut self, owner: K) {
        if let Some(index) = self.order.iter().position(|(_, entry)| *entry == owner) {
            self.remove(index);
        }
    }

    fn remove(&mut self, index: usize) {
        let Some((_, owner)) = self.order.remove(index) else { return };
        if let Some(count) = self.counts.get_mut(&owner) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&owner);
            }
        }
    }

    fn count(&self, owner: K) -> u32 {
        self.counts.get(&owner).copied().unwrap_or(0)
    }
}

/// A connection that stands ready to make material for its client's stock.
struct Offer {
    client: ClientId,
    model: ModelId,
    /// The stock's size as the client reports it.
    reported: u32,
    max_stock: u32,
}

/// How far a client's stock is filled, in thousandths of what it needs.
type Covered = u64;

#[derive(Default)]
pub(super) struct Offers {
    standing: std::collections::BTreeMap<Owner, Offer>,
    /// Connections that have got a turn, until their job has ended.
    filling: std::collections::BTreeMap<Owner, (ClientId, ModelId)>,
    recent_turns: RecentEvents<ClientId>,
    /// Material recently made for stock and not used yet.
    recently_made: RecentEvents<(ClientId, ModelId)>,
}

impl Offers {
    pub(super) fn len(&self) -> u32 {
        self.standing.len() as u32
    }

    /// Whether this owner has its turn, so that no input waits for its material.
    pub(super) fn is_filling(&self, owner: Owner) -> bool {
        self.filling.contains_key(&owner)
    }

    pub(super) fn forget(&mut self, owner: Owner) {
        self.standing.remove(&owner);
        self.filling.remove(&owner);
    }

    pub(super) fn use_one(&mut self, client: ClientId, model: ModelId) {
        let offers = self.standing.values_mut().filter(|offer| (offer.client, offer.model) == (client, model));
        offers.for_each(|offer| offer.reported = offer.reported.saturating_sub(1));
        self.recently_made.take((client, model));
    }

    pub(super) fn record_made(&mut self, owner: Owner, now: Time) {
        if let Some(&stock) = self.filling.get(&owner) {
            self.recently_made.add(now, stock);
        }
    }

    /// How far an offer's stock is filled, counting what is being made; `None` if it needs no more.
    fn covered(&self, offer: &Offer, wanted: u32) -> Option<Covered> {
        let making = self.filling.values().filter(|&&stock| stock == (offer.client, offer.model)).count() as u32;
        let size = offer.reported.max(self.recently_made.count((offer.client, offer.model)));
        let (have, wanted) = (size.saturating_add(making), wanted.min(offer.max_stock));
        (have < wanted).then(|| u64::from(have) * 1000 / u64::from(wanted))
    }
}

impl Queue {
    /// A connection stands ready to make material for stock, of which the client reports `reported`
    /// and may hold `max_stock`.
    pub(crate) fn refill(
        &mut self,
        connection: ConnectionId,
        origin: &InputOrigin,
        reported: u32,
        max_stock: u32,
    ) -> Result<(), Refused> {
        let owner = self.notice(Some(connection), origin, None, None, None, true)?;
        let (client, model) = (origin.client, self.model(origin)?);
        if let Some(PendingInput { ready_connection, .. }) = self.inputs.live.get_mut(&owner) {
            *ready_connection = Some(connection);
        }
        self.attach_connection(owner, connection);
        self.offers.standing.insert(owner, Offer { client, model, reported, max_stock });
        Ok(())
    }

    /// Gives one connection its turn if no job waits, cores (or the dealer) are idle, and its
    /// client's stock is below what its rate needs. Returns whether one got it.
    pub(super) fn fill(&mut self) -> bool {
        if self.offers.standing.is_empty() || self.scheduler.queued_jobs() > 0 {
            return false;
        }
        let now = self.now();
        self.offers.recent_turns.forget_before(now);
        self.offers.recently_made.forget_before(now);
        let Some(owner) = self.next_to_fill() else { return false };
        let offer = self.offers.standing.remove(&owner).expect("it was found there");
        self.offers.recent_turns.add(now, offer.client);
        self.offers.filling.insert(owner, (offer.client, offer.model));
        self.set_lanes(owner, 1);
        true
    }

    /// The offer to fill next: of the client with fewest recent turns, the one whose stock is least
    /// filled, if its job has room.
    fn next_to_fill(&self) -> Option<Owner> {
        let (have, used) = (self.scheduler.capacity(), self.scheduler.used());
        let filling = self.offers.filling.values();
        let dealing = filling.clone().filter(|(_, model)| self.models.by_id[model.0 as usize].dealt).count() as u64;
        let computing = filling.len() as u64 - dealing;
        let cores_are_idle = is_idle(self.settings.threads, have.cores, used.cores, computing);
        let dealer_is_idle = is_idle(1, have.dealings, used.dealings, dealing);
        let startable = self.offers.standing.iter().filter(|(_, offer)| {
            let is_dealt = self.models.by_id[offer.model.0 as usize].dealt;
            if is_dealt { dealer_is_idle } else { cores_are_idle }
        });
        let wanting = startable.filter_map(|(&owner, offer)| {
            let covered = self.fillable(offer, have.memory, used.memory)?;
            Some((self.offers.recent_turns.count(offer.client), covered, owner))
        });
        wanting.min().map(|(_, _, owner)| owner)
    }

    /// Returns how far an offer's stock is filled; `None` if it needs no more, or its job does not
    /// fit in memory.
    fn fillable(&self, offer: &Offer, have: u64, used: u64) -> Option<Covered> {
        let estimate = self.scheduler.profile().estimate(offer.model, JobPhase::Pre, 1, self.settings.threads);
        let (t_pre, memory) = estimate.map_or((Span::ZERO, 0), |e| (e.time, e.memory));
        let fits = used.saturating_add(memory) <= share(have);
        let wanted = self.demand.stock(offer.client, offer.model, self.now(), t_pre);
        self.offers.covered(offer, wanted).filter(|_| fits)
    }
}

fn share(amount: u64) -> u64 {
    amount / REFILL_SHARE.1 * REFILL_SHARE.0 + amount % REFILL_SHARE.1 * REFILL_SHARE.0 / REFILL_SHARE.1
}

/// Whether a refill job that takes `per_job` of a resource may start beside `running` others.
fn is_idle(per_job: u32, have: u32, used: u32, running: u64) -> bool {
    // At least one job may run, even on a machine with one core.
    let (per_job, allowed) = (u64::from(per_job), share(u64::from(have)).max(u64::from(per_job)));
    u64::from(have.saturating_sub(used)) >= per_job && (running + 1) * per_job <= allowed
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: ModelId = ModelId(0);

    fn offers(reported: u32) -> (Offers, ClientId, Offer) {
        let client = ClientId([1; 32]);
        (Offers::default(), client, Offer { client, model: MODEL, reported, max_stock: 4 })
    }

    #[test]
    fn counts_made_stock_whatever_its_client_reports() {
        let (mut offers, client, says_nothing) = offers(0);
        let owner = Owner::Notice(tacit_sched::NoticeId(1));
        let time = Time::from_secs;
        for second in 0..4 {
            assert!(offers.covered(&says_nothing, 8).is_some());
            offers.filling.insert(owner, (client, MODEL));
            offers.record_made(owner, time(f64::from(second)));
            offers.forget(owner);
        }
        assert_eq!(offers.covered(&says_nothing, 8), None);
        offers.use_one(client, MODEL);
        assert_eq!(offers.covered(&says_nothing, 8), Some(750));
        // Stock that was not used for long may be gone at the client.
        offers.recently_made.forget_before(time(700.0));
        assert_eq!(offers.covered(&says_nothing, 8), Some(0));
    }

    #[test]
    fn remembers_few_turns_and_not_for_long() {
        let mut turns = RecentEvents::default();
        for i in 0..2 * MAX_RECENT_EVENTS {
            turns.add(Time::from_secs(i as f64), i % 2);
        }
        assert_eq!(
            (turns.order.len(), turns.count(0), turns.count(1)),
            (MAX_RECENT_EVENTS, MAX_RECENT_EVENTS as u32 / 2, MAX_RECENT_EVENTS as u32 / 2)
        );
        turns.take(1);
        assert_eq!(turns.count(1), MAX_RECENT_EVENTS as u32 / 2 - 1);
        turns.forget_before(Time::from_secs(1e6));
        assert_eq!((turns.order.len(), turns.counts.len()), (0, 0));
    }
}
