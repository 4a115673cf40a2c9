//! Limits of a client: answers in a day, and requests in a minute.
use crate::ServeError;
use crate::accept::refusal_reasons::OVER_QUOTA;
use std::collections::{HashMap, HashSet, VecDeque};
use std::num::NonZeroU32;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tacit_ids::{ClientId, MaterialId};
use tacit_store::clock::MAX_CLOCK_JUMP;

pub(crate) const DAY_S: i64 = 24 * 3600;

/// Seconds since 1970.
pub(crate) fn unix_now() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX)
}

/// Days ahead of today beyond which a recorded day must come from a wrong clock.
pub(crate) const MAX_AHEAD: i64 = 7;

/// The time by which days are counted: the machine's clock, unless it jumps while this program
/// runs.
pub(crate) struct Clock {
    unix_s: i64,
    updated_at: Instant,
    has_jumped: bool,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { unix_s: unix_now(), updated_at: Instant::now(), has_jumped: false }
    }

    /// Seconds since 1970.
    pub(crate) fn now(&mut self) -> i64 {
        self.adjust(unix_now(), Instant::now())
    }

    /// Returns `unix_s`, or after a jump of the machine's clock the last good time plus what has
    /// passed since.
    fn adjust(&mut self, unix_s: i64, now: Instant) -> i64 {
        let passed = now.saturating_duration_since(self.updated_at).as_secs();
        let expected = self.unix_s.saturating_add_unsigned(passed);
        let has_jumped = unix_s.abs_diff(expected) > MAX_CLOCK_JUMP.as_secs();
        if has_jumped && !self.has_jumped {
            tracing::error!(
                "the clock of this machine has jumped by {} days: quotas and records go on by the time before; set the clock, \
                 or start the server again with --accept-clock",
                unix_s.abs_diff(expected) / DAY_S.unsigned_abs()
            );
        }
        self.has_jumped = has_jumped;
        if has_jumped {
            return expected;
        }
        (self.unix_s, self.updated_at) = (unix_s, now);
        unix_s
    }
}

/// The day (UTC) of a time, counted from 1970.
pub(crate) fn day_of(unix_s: i64) -> i64 {
    unix_s.div_euclid(DAY_S)
}

/// A charge of one or more answers of a model against a client's quota of a day.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QuotaCharge {
    pub(crate) client: ClientId,
    pub(crate) model: String,
    pub(crate) day: i64,
    pub(crate) inputs: u32,
    /// The quota: answers allowed in the day.
    pub(crate) per_day: u32,
}

impl QuotaCharge {
    /// The error for a charge when `remaining` answers remain at `now`, in seconds since 1970.
    pub(crate) fn used_up_error(&self, now: i64, remaining: u32) -> ServeError {
        let again_s = self.day.saturating_add(1).saturating_mul(DAY_S).saturating_sub(now).max(0).unsigned_abs();
        let minutes = again_s.div_ceil(60);
        let remaining = match remaining {
            0 => "is used up".to_owned(),
            remaining => {
                format!("has {remaining} left, and {} inputs were asked for together, so none was begun", self.inputs)
            }
        };
        let reason = format!(
            "your quota of {} answers a day of model `{}` {remaining}; it starts again at midnight UTC, in {} h {} min",
            self.per_day,
            self.model,
            minutes / 60,
            minutes % 60
        );
        ServeError::OverLimit { kind: OVER_QUOTA, reason, again_s }
    }
}

/// Answers used on the latest day that was seen: setting the clock back resets no quota.
pub(crate) struct Quotas {
    day: i64,
    used: HashMap<(ClientId, String), u32>,
}

impl Quotas {
    /// Continues from the stored counts of a day.
    pub(crate) fn new(day: i64, used: HashMap<(ClientId, String), u32>) -> Self {
        Self { day, used }
    }

    /// Takes answers of the day of `now` (seconds since 1970), or returns why they do not fit.
    pub(crate) fn take(
        &mut self,
        now: i64,
        client: ClientId,
        model: &str,
        inputs: u32,
        per_day: u32,
    ) -> Result<QuotaCharge, ServeError> {
        let charge = self.check_fits(now, client, model, inputs, per_day)?;
        *self.used.entry((client, model.to_owned())).or_default() += inputs;
        Ok(charge)
    }

    /// Answers that a client has left today.
    pub(crate) fn remaining(&mut self, now: i64, client: ClientId, model: &str, per_day: u32) -> u32 {
        // The counts are of an earlier day.
        if day_of(now) > self.day {
            (self.day, self.used) = (day_of(now), HashMap::new());
        }
        let taken = self.used.get(&(client, model.to_owned())).copied().unwrap_or(0);
        per_day.saturating_sub(taken)
    }

    /// Returns what [`take`](Self::take) would, without taking.
    pub(crate) fn check_fits(
        &mut self,
        now: i64,
        client: ClientId,
        model: &str,
        inputs: u32,
        per_day: u32,
    ) -> Result<QuotaCharge, ServeError> {
        let remaining = self.remaining(now, client, model, per_day);
        let charge = QuotaCharge { client, model: model.to_owned(), day: self.day, inputs, per_day };
        if inputs <= remaining { Ok(charge) } else { Err(charge.used_up_error(now, remaining)) }
    }

    pub(crate) fn give_back(&mut self, charge: &QuotaCharge) {
        if charge.day == self.day
            && let Some(used) = self.used.get_mut(&(charge.client, charge.model.clone()))
        {
            *used = used.saturating_sub(charge.inputs);
        }
    }
}

/// A token bucket: refilled at a steady rate, holding at most a minute's tokens.
#[derive(Clone, Copy)]
pub(crate) struct Bucket {
    tokens: f64,
    updated_at: Instant,
}

impl Bucket {
    pub(crate) fn full(now: Instant, per_minute: NonZeroU32) -> Self {
        Self { tokens: f64::from(per_minute.get()), updated_at: now }
    }

    fn fill(&mut self, now: Instant, per_minute: NonZeroU32) {
        let (capacity, elapsed) = (f64::from(per_minute.get()), now.saturating_duration_since(self.updated_at));
        self.tokens = (self.tokens + elapsed.as_secs_f64() * capacity / 60.0).min(capacity);
        self.updated_at = now;
    }

    /// Takes tokens, or returns how long to wait until there are enough.
    pub(crate) fn take(&mut self, now: Instant, per_minute: NonZeroU32, tokens: u32) -> Result<(), Duration> {
        self.fill(now, per_minute);
        let wanted = f64::from(tokens);
        if self.tokens >= wanted {
            self.tokens -= wanted;
            return Ok(());
        }
        Err(Duration::from_secs_f64((wanted - self.tokens) * 60.0 / f64::from(per_minute.get())))
    }

    pub(crate) fn give_back(&mut self, tokens: u32) {
        // The next `fill` drops what exceeds the bucket's size.
        self.tokens += f64::from(tokens);
    }

    /// Whether the bucket is as if never used.
    pub(crate) fn is_full(&mut self, now: Instant, per_minute: NonZeroU32) -> bool {
        self.fill(now, per_minute);
        self.tokens >= f64::from(per_minute.get())
    }
}

/// Most materials remembered as paid; forgotten ones cost their client's rate again.
const MAX_STOCK: usize = 1 << 16;

/// Materials for stock whose making was charged to their client's rate: using them costs nothing more.
#[derive(Default)]
pub(crate) struct PaidStock {
    ids: HashSet<(ClientId, MaterialId)>,
    /// In order of making; may contain used ones.
    order: VecDeque<(ClientId, MaterialId)>,
}

impl PaidStock {
    pub(crate) fn holds(&self, client: ClientId, id: MaterialId) -> bool {
        self.ids.contains(&(client, id))
    }

    pub(crate) fn insert(&mut self, client: ClientId, id: MaterialId) {
        if self.ids.insert((client, id)) {
            self.order.push_back((client, id));
        }
        while self.order.len() > MAX_STOCK {
            if let Some(oldest) = self.order.pop_front() {
                self.ids.remove(&oldest);
            }
        }
    }

    pub(crate) fn remove(&mut self, client: ClientId, id: MaterialId) {
        self.ids.remove(&(client, id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: ClientId = ClientId([1; 32]);
    /// Noon of day 100.
    const NOON: i64 = 100 * DAY_S + DAY_S / 2;

    #[test]
    fn quotas_are_of_a_day_a_model_and_a_client() {
        let (mut quotas, bob) = (Quotas::new(100, HashMap::from([((ALICE, "m".into()), 1)])), ClientId([2; 32]));
        assert_eq!(quotas.take(NOON, ALICE, "m", 1, 2).unwrap().day, 100);
        let reason = quotas.take(NOON, ALICE, "m", 1, 2).unwrap_err().to_string();
        for part in ["quota of 2", "`m`", "in 12 h 0 min"] {
            assert!(reason.contains(part), "{part}: {reason}");
        }
        for (client, model, per_day, fits) in
            [(ALICE, "n", 2, true), (bob, "m", 2, true), (ALICE, "m", 3, true), (ALICE, "x", 0, false)]
        {
            assert_eq!(quotas.take(NOON, client, model, 1, per_day).is_ok(), fits, "{model}, {per_day} a day");
        }
        assert_eq!(quotas.take(NOON + DAY_S, ALICE, "m", 1, 1).unwrap().day, 101);
    }

    #[test]
    fn clock_set_back_resets_no_quota() {
        let mut quotas = Quotas::new(100, HashMap::new());
        assert!(quotas.take(NOON, ALICE, "m", 1, 1).is_ok());
        for step in [DAY_S, 99 * DAY_S, NOON, NOON + 5 * DAY_S] {
            let reason = quotas.take(NOON - step, ALICE, "m", 1, 1).unwrap_err().to_string();
            assert!(reason.contains("is used up"), "{reason}");
        }
        let error = quotas.take(NOON - DAY_S, ALICE, "m", 1, 1).unwrap_err();
        assert!(error.to_string().contains("in 36 h 0 min"), "{error}");
        assert!(matches!(error, ServeError::OverLimit { again_s: 129_600, .. }), "{error:?}");
        assert_eq!(quotas.take(NOON - DAY_S, ALICE, "n", 1, 1).unwrap().day, 100);
        assert!(quotas.take(NOON + DAY_S, ALICE, "m", 1, 1).is_ok());
    }

    #[test]
    fn clock_jump_ends_no_day() {
        let (start, minute) = (Instant::now(), Duration::from_secs(60));
        let mut clock = Clock { unix_s: NOON, updated_at: start, has_jumped: false };
        assert_eq!(clock.adjust(NOON + 61, start + minute), NOON + 61);
        for jump in [400 * DAY_S, -400 * DAY_S] {
            assert_eq!(clock.adjust(NOON + jump, start + minute * 2), NOON + 121);
        }
        assert_eq!(clock.adjust(NOON + 200, start + minute * 3), NOON + 200);
        assert_eq!(clock.adjust(NOON + 6 * DAY_S, start + minute * 4), NOON + 6 * DAY_S);
    }

    #[test]
    fn unused_charges_come_back_on_their_own_day_only() {
        let mut quotas = Quotas::new(100, HashMap::new());
        let first = quotas.take(NOON, ALICE, "m", 1, 1).unwrap();
        assert!(quotas.check_fits(NOON, ALICE, "m", 1, 1).is_err());
        quotas.give_back(&first);
        let second = quotas.take(NOON, ALICE, "m", 1, 1).unwrap();
        assert!(quotas.take(NOON + DAY_S, ALICE, "m", 1, 1).is_ok());
        quotas.give_back(&second);
        assert!(quotas.take(NOON + DAY_S, ALICE, "m", 1, 1).is_err());
    }

    #[test]
    fn stock_is_paid_for_once_and_remembered_within_limits() {
        let (mut stock, id) = (PaidStock::default(), |n: usize| MaterialId::numbered(n as u64));
        stock.insert(ALICE, id(1));
        assert!(stock.holds(ALICE, id(1)));
        assert!(!stock.holds(ClientId([2; 32]), id(1)));
        stock.remove(ALICE, id(1));
        assert!(!stock.holds(ALICE, id(1)));
        (0..MAX_STOCK + 10).for_each(|n| stock.insert(ALICE, id(n)));
        assert!(!stock.holds(ALICE, id(2)));
        assert!(stock.holds(ALICE, id(MAX_STOCK)));
        assert!(stock.ids.len() <= MAX_STOCK);
        assert!(stock.order.len() <= MAX_STOCK);
    }

    #[test]
    fn returned_tokens_are_available_up_to_the_capacity() {
        let (start, rate) = (Instant::now(), NonZeroU32::new(1).unwrap());
        let mut bucket = Bucket::full(start, rate);
        assert!(bucket.take(start, rate, 1).is_ok());
        assert!(bucket.take(start, rate, 1).is_err());
        bucket.give_back(1);
        bucket.give_back(1);
        assert!(bucket.take(start, rate, 1).is_ok());
        assert!(bucket.take(start, rate, 1).is_err());
    }

    #[test]
    fn bucket_holds_a_minute_and_fills_at_its_rate() {
        let (start, rate) = (Instant::now(), NonZeroU32::new(30).unwrap());
        let mut bucket = Bucket::full(start, rate);
        assert!((0..30).all(|_| bucket.take(start, rate, 1).is_ok()));
        let wait = bucket.take(start, rate, 1).unwrap_err();
        assert!((wait.as_secs_f64() - 2.0).abs() < 1e-6, "{wait:?}");
        assert!(bucket.take(start + Duration::from_secs(2), rate, 1).is_ok());
        assert!(bucket.take(start + Duration::from_secs(2), rate, 1).is_err());
        assert!(!bucket.is_full(start + Duration::from_secs(61), rate));
        assert!(bucket.is_full(start + Duration::from_secs(62), rate));
        let later = start + Duration::from_secs(7200);
        assert_eq!((0..100).filter(|_| bucket.take(later, rate, 1).is_ok()).count(), 30);
    }
}
