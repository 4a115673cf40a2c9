//! Stock that the server fills when it has nothing else to do: connections stand ready to make material, and
//! one of them gets its turn when no job waits and its client's own rate says that it will be needed.
use super::{Live, Queue, Refused, Whose};
use crate::door::Number;
use tacit_ids::ClientId;
use tacit_sched::{Event, JobPhase, ModelId, Owner, Span};

/// Most of the cores, and of the memory, that such jobs take together: three of four.
const SHARE: (u64, u64) = (3, 4);

/// A connection that stands ready to make material for its client's stock.
struct Offer {
    client: ClientId,
    model: ModelId,
    /// What the stock holds.
    held: u32,
    /// What it may hold.
    most: u32,
}

/// How much somebody needs stock: what there is, in thousandths of what there should be.
type Covered = u64;

/// Connections that stand ready to fill stock.
#[derive(Default)]
pub(super) struct Offers {
    standing: std::collections::BTreeMap<Owner, Offer>,
    /// Those that have got their turn, until their job has ended.
    filling: std::collections::BTreeMap<Owner, (ClientId, ModelId)>,
}

impl Offers {
    /// How many stand ready and have no turn yet.
    pub(super) fn len(&self) -> u32 {
        self.standing.len() as u32
    }

    pub(super) fn forget(&mut self, owner: Owner) {
        self.standing.remove(&owner);
        self.filling.remove(&owner);
    }

    /// A client uses one of its stock.
    pub(super) fn used(&mut self, client: ClientId, model: ModelId) {
        let whose = |offer: &&mut Offer| (offer.client, offer.model) == (client, model);
        self.standing.values_mut().filter(whose).for_each(|offer| offer.held = offer.held.saturating_sub(1));
    }

    /// How far an offer's stock is covered, what is being made included; `None` if it wants nothing.
    fn covered(&self, offer: &Offer, wanted: u32) -> Option<Covered> {
        let making = self.filling.values().filter(|&&whose| whose == (offer.client, offer.model)).count() as u32;
        let (have, wanted) = (offer.held.saturating_add(making), wanted.min(offer.most));
        (have < wanted).then(|| u64::from(have) * 1000 / u64::from(wanted))
    }
}

impl Queue {
    /// A connection stands ready to make material for its client's stock, which holds so much and may hold so
    /// much. When is up to [`fill`](Self::fill).
    pub(crate) fn refill(&mut self, number: Number, whose: &Whose, held: u32, most: u32) -> Result<(), Refused> {
        let owner = self.notice(Some(number), whose, None, (None, None), true)?;
        let (client, model) = (whose.client, self.model(whose)?);
        if let Some(Live { waits, .. }) = self.live.get_mut(&owner) {
            *waits = Some(number);
        }
        self.house(owner, number);
        self.offers.standing.insert(owner, Offer { client, model, held, most });
        Ok(())
    }

    /// Gives one standing connection its turn, if no job waits, cores are idle, and its client's stock is
    /// below what its rate asks for; whether there was one.
    pub(super) fn fill(&mut self) -> bool {
        if self.offers.standing.is_empty() || self.scheduler.queued_jobs() > 0 {
            return false;
        }
        let Some(owner) = self.least_covered() else { return false };
        let offer = self.offers.standing.remove(&owner).expect("it was found there");
        self.offers.filling.insert(owner, (offer.client, offer.model));
        self.note(Event::Lanes { of: owner, lanes: 1 });
        true
    }

    /// The offer whose stock is least covered and for whose job the machine has room.
    fn least_covered(&self) -> Option<Owner> {
        let (have, used) = (self.scheduler.capacity(), self.scheduler.used());
        let share = |of: u64| of / SHARE.1 * SHARE.0 + of % SHARE.1 * SHARE.0 / SHARE.1;
        let (threads, running) = (u64::from(self.threads), self.offers.filling.len() as u64);
        // At least one, or a machine with one core would have none.
        let cores = share(u64::from(have.cores)).max(threads);
        let is_idle = u64::from(have.cores.saturating_sub(used.cores)) >= threads;
        if !is_idle || (running + 1) * threads > cores {
            return None;
        }
        let wants = |(&owner, offer): (&Owner, &Offer)| {
            let estimate = self.scheduler.profile().estimate(offer.model, JobPhase::Pre, 1, self.threads);
            let (t_pre, memory) = estimate.map_or((Span::ZERO, 0), |e| (e.time, e.memory));
            let fits = used.memory.saturating_add(memory) <= share(have.memory);
            let wanted = self.demand.stock(offer.client, offer.model, self.now(), t_pre);
            Some((self.offers.covered(offer, wanted).filter(|_| fits)?, owner))
        };
        self.offers.standing.iter().filter_map(wants).min().map(|(_, owner)| owner)
    }
}
