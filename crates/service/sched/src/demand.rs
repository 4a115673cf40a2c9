//! How much stock to hold for a client, from the rate at which the client's inputs are answered.

use crate::ids::{ClientId, ModelId};
use crate::pool::{ArrivalRate, stock_for};
use crate::time::{Span, Time};
use std::collections::BTreeMap;

/// Time constant of the rates.
const WINDOW: Span = Span::from_millis(600_000);
/// Shortest time whose inputs the stock covers; one T_pre where that takes longer. Bridges short
/// gaps between idle phases of the cores.
pub const HORIZON: Span = Span::from_millis(30_000);
const MAX_PAIRS: usize = 4096;

#[derive(Clone, Debug)]
struct History {
    first: Time,
    last: Time,
    rate: ArrivalRate,
}

/// The rates at which inputs are answered, by client and model. Inputs without an answer do not
/// count.
#[derive(Clone, Debug, Default)]
pub struct Demand(BTreeMap<(ClientId, ModelId), History>);

impl Demand {
    /// Records that one input of a client was answered.
    pub fn record_answer(&mut self, client: ClientId, model: ModelId, now: Time) {
        if self.0.len() >= MAX_PAIRS && !self.0.contains_key(&(client, model)) {
            let oldest = self.0.iter().min_by_key(|(_, history)| history.last).map(|(&key, _)| key);
            oldest.and_then(|key| self.0.remove(&key));
        }
        let new = History { first: now, last: now, rate: ArrivalRate::default() };
        let history = self.0.entry((client, model)).or_insert(new);
        history.last = now;
        history.rate.add(now, 1.0, WINDOW);
    }

    /// Target stock of a client and model: the inputs expected within [`HORIZON`], or within one
    /// T_pre if that is longer, plus two standard deviations. 1 for a client without history.
    #[must_use]
    pub fn stock(&self, client: ClientId, model: ModelId, now: Time, t_pre: Span) -> u32 {
        let history = self.0.get(&(client, model));
        let rate = history.map_or(0.0, |history| history.rate.per_second(now, history.first, WINDOW));
        stock_for(rate * t_pre.max(HORIZON).secs()).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: ModelId = ModelId(0);

    fn stock(interval: f64, times: u32, idle: f64, t_pre: f64) -> u32 {
        let (client, mut demand) = (ClientId::numbered(1), Demand::default());
        for i in 0..times {
            demand.record_answer(client, MODEL, Time::from_secs(f64::from(i) * interval));
        }
        let now = Time::from_secs(f64::from(times) * interval + idle);
        assert_eq!(demand.stock(ClientId::numbered(2), MODEL, now, Span::from_secs(t_pre)), 1);
        demand.stock(client, MODEL, now, Span::from_secs(t_pre))
    }

    #[test]
    fn stock_follows_the_clients_own_rate() {
        // One in two seconds: 15 in half a minute, and 2 * sqrt(15) more.
        assert!((21..=24).contains(&stock(2.0, 600, 0.0, 1.0)), "{}", stock(2.0, 600, 0.0, 1.0));
        // One in a minute: half of one, and 2 * sqrt(0.5).
        assert_eq!(stock(60.0, 100, 0.0, 1.0), 2);
        // A T_pre of five minutes: five, and 2 * sqrt(5).
        assert!((9..=11).contains(&stock(60.0, 100, 0.0, 300.0)));
        // A client without a request for two hours gets one.
        assert_eq!(stock(2.0, 600, 7200.0, 1.0), 1);
    }

    #[test]
    fn remembers_a_bounded_number_of_pairs() {
        let mut demand = Demand::default();
        for i in 0..2 * MAX_PAIRS as u64 {
            demand.record_answer(ClientId::numbered(i), MODEL, Time::from_secs(i as f64));
        }
        assert_eq!(demand.0.len(), MAX_PAIRS);
        assert!(demand.0.contains_key(&(ClientId::numbered(2 * MAX_PAIRS as u64 - 1), MODEL)));
    }
}
