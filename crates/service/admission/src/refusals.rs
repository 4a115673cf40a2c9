//! Log lines for refusals and broken connections. Any peer can cause them, so the first is logged
//! at once and the rest of a minute in one line. Memory is bounded.
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Time between two log lines.
const LINE_INTERVAL: Duration = Duration::from_secs(60);
const MAX_ADDRESSES: usize = 1024;

/// Most characters of the description of a refusal, which peers can influence.
const MAX_DETAIL: usize = 500;

/// Why connections or requests were refused: a phrase in the plural that follows their number.
pub type RefusalReason = &'static str;

/// Refusals that are counted but not logged yet.
#[derive(Default)]
pub(crate) struct RefusalSummary {
    /// When the next line may be logged.
    quiet_until: Option<Instant>,
    kinds: BTreeMap<RefusalReason, u64>,
    addresses: HashMap<IpAddr, u64>,
    last: String,
}

impl RefusalSummary {
    /// Counts a refusal; returns the line to log now, if any.
    pub(crate) fn count(
        &mut self,
        now: Instant,
        kind: RefusalReason,
        address: Option<IpAddr>,
        mut detail: String,
    ) -> Option<String> {
        if let Some((end, _)) = detail.char_indices().nth(MAX_DETAIL) {
            detail.truncate(end);
        }
        if self.quiet_until.is_none() {
            self.quiet_until = Some(now + LINE_INTERVAL);
            return Some(format!(
                "refused: {detail} (of what else is refused within {} s, one line follows)",
                LINE_INTERVAL.as_secs()
            ));
        }
        *self.kinds.entry(kind).or_default() += 1;
        self.last = detail;
        if let Some(address) = address
            && (self.addresses.len() < MAX_ADDRESSES || self.addresses.contains_key(&address))
        {
            *self.addresses.entry(address).or_default() += 1;
        }
        None
    }

    /// When [`sum_up`](Self::sum_up) is due.
    pub(crate) fn alarm(&self) -> Option<Instant> {
        self.quiet_until
    }

    /// Returns the line for the counted refusals, if it is due and there are any.
    pub(crate) fn sum_up(&mut self, now: Instant) -> Option<String> {
        self.quiet_until.filter(|end| *end <= now)?;
        let line = self.take_line();
        self.quiet_until = line.is_some().then(|| now + LINE_INTERVAL);
        line
    }

    /// Returns the line for the counted refusals, if there are any.
    pub(crate) fn take_line(&mut self) -> Option<String> {
        let Self { kinds, addresses, last, .. } = std::mem::take(self);
        if kinds.is_empty() {
            return None;
        }
        let total: u64 = kinds.values().sum();
        let kinds: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let busiest = addresses.iter().max_by_key(|(_, count)| **count);
        let busiest =
            busiest.map_or_else(String::new, |(address, count)| format!("; most of them, {count}, from {address}"));
        Some(format!("refused {total} times: {}{busiest}; the last: {last}", kinds.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_a_flood_in_one_line_a_minute() {
        let (start, mut lines) = (Instant::now(), Vec::new());
        let mut refusals = RefusalSummary::default();
        assert!(refusals.alarm().is_none());
        // A thousand a second for three minutes, from more addresses than are counted separately.
        for i in 0..180_000u32 {
            let now = start + Duration::from_millis(u64::from(i));
            lines.extend(refusals.sum_up(now));
            let address = IpAddr::from((0x7f00_0000 + if i % 2 == 0 { 0 } else { i }).to_be_bytes());
            lines.extend(refusals.count(now, "strangers", Some(address), format!("number {i}")));
        }
        assert_eq!(lines.len(), 3, "{lines:#?}");
        assert!(lines[0].starts_with("refused: number 0"), "{lines:?}");
        assert_eq!(
            lines[1],
            "refused 59999 times: 59999 strangers; most of them, 29999, from 127.0.0.0; the last: number 59999"
        );
        assert!(refusals.addresses.len() <= MAX_ADDRESSES);
        let end = refusals.alarm().unwrap();
        assert!(refusals.sum_up(end).unwrap().starts_with("refused 60000 times"));
        // A quiet minute logs nothing, and the next refusal is logged at once.
        assert_eq!(refusals.sum_up(end + LINE_INTERVAL), None);
        assert!(refusals.count(end + LINE_INTERVAL, "strangers", None, "new".into()).unwrap().contains("new"));
    }
}
