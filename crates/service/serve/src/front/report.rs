//! Reports of nodes to the front. Names and numbers, no secrets.
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::str::FromStr;
use tacit_ids::ClientId;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Report {
    /// Seconds that an input arriving now would wait, as the node's scheduler estimates.
    pub(super) waiting_s: f64,
    pub(super) models: BTreeMap<String, Vec<String>>,
    #[serde(deserialize_with = "by_client")]
    pub(super) stock: BTreeMap<ClientId, u64>,
    /// Answered inputs of each client since this run of the node began.
    #[serde(deserialize_with = "by_client")]
    pub(super) answered: BTreeMap<ClientId, u64>,
    /// Version of the list of clients that the node's server applies.
    pub(super) admitted: u64,
    /// Address and pin of the server's dealer, separated by a space; empty without a dealer.
    pub(super) dealer: String,
}

impl Report {
    pub(super) fn stock_in_all(&self) -> u64 {
        self.stock.values().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

/// Decodes a map whose keys are fingerprints as `tacit keys fingerprint` prints them.
fn by_client<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<ClientId, u64>, D::Error> {
    let named = BTreeMap::<String, u64>::deserialize(deserializer)?;
    let parsed = named.into_iter().map(|(name, count)| Ok((ClientId::from_str(&name)?, count)));
    parsed.collect::<Result<_, tacit_ids::NotAnId>>().map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_reports_and_rejects_others() {
        let client = ClientId::numbered(3);
        let text = format!(
            r#"{{"waiting_s": 1.5, "models": {{"net": ["cheetah"]}}, "stock": {{"{client}": 2}}, "answered": {{}}, "admitted": 4, "dealer": ""}}"#
        );
        let report: Report = serde_json::from_str(&text).unwrap();
        assert_eq!((report.stock[&client], report.admitted, report.models["net"].len()), (2, 4, 1));
        for wrong in [text.replace("waiting_s", "waits"), text.replace(&client.to_string(), "alice"), "{}".into()] {
            assert!(serde_json::from_str::<Report>(&wrong).is_err(), "{wrong}");
        }
    }
}
