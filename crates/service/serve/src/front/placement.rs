//! Chooses the node for a client. Pure: no clock, no network.
use std::cmp::Reverse;
use tacit_ids::ClientId;

/// A candidate node, as of its last report.
#[derive(Clone, Copy)]
pub(super) struct Site<'a> {
    pub(super) name: &'a str,
    /// Seconds that an input arriving now would wait there, as the node's scheduler estimates.
    pub(super) waiting_s: f64,
    pub(super) stock: u64,
}

/// Sorts the sites by rendezvous hashing of the client's id. A node that joins or leaves moves only
/// its own clients.
fn rendezvous<'a>(client: ClientId, mut sites: Vec<Site<'a>>) -> Vec<Site<'a>> {
    sites.sort_by_cached_key(|site| {
        let weight = blake3::Hasher::new().update(&client.0).update(site.name.as_bytes()).finalize();
        Reverse(*weight.as_bytes())
    });
    sites
}

/// Chooses the site with most of the client's material, then the shortest expected wait, then the
/// first of the rendezvous order. For clients with large key sets only the first `copies` sites of
/// that order count, so that their keys lie on few nodes.
pub(super) fn choose<'a>(client: ClientId, sites: Vec<Site<'a>>, copies: Option<usize>) -> Option<Site<'a>> {
    let order = rendezvous(client, sites).into_iter().take(copies.unwrap_or(usize::MAX));
    // `min_by` returns the first of equals, so the rendezvous order decides.
    order.min_by(|a, b| b.stock.cmp(&a.stock).then(tacit_floats::rising(&a.waiting_s, &b.waiting_s)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const ALICE: ClientId = ClientId([7; 32]);

    fn site(name: &str, waiting_s: f64, stock: u64) -> Site<'_> {
        Site { name, waiting_s, stock }
    }

    fn chosen(sites: &[Site<'_>], copies: Option<usize>) -> Option<String> {
        choose(ALICE, sites.to_vec(), copies).map(|site| site.name.to_owned())
    }

    fn first(client: ClientId, names: &[String]) -> String {
        rendezvous(client, names.iter().map(|name| site(name, 0.0, 0)).collect())[0].name.to_owned()
    }

    #[test]
    fn leaving_node_moves_its_own_clients_only() {
        let nodes: Vec<String> = (0..8).map(|n| format!("node-{n}")).collect();
        let remaining: Vec<String> = nodes.iter().filter(|name| *name != "node-3").cloned().collect();
        let mut shares = BTreeMap::<String, usize>::new();
        for client in (0..4000).map(ClientId::numbered) {
            let home = first(client, &nodes);
            assert_eq!(first(client, &remaining) == home, home != "node-3");
            *shares.entry(home).or_default() += 1;
        }
        assert!(shares.len() == 8, "{shares:?}");
        assert!(shares.values().all(|share| (400..600).contains(share)), "{shares:?}");
        assert!(rendezvous(ALICE, Vec::new()).is_empty());
    }

    #[test]
    fn material_precedes_wait_and_wait_precedes_name() {
        let choose_name = |sites: &[Site<'_>]| chosen(sites, None).unwrap();
        assert_eq!(choose_name(&[site("a", 0.0, 0), site("b", 9.0, 1)]), "b");
        assert_eq!(choose_name(&[site("a", 5.0, 1), site("b", 9.0, 2)]), "b");
        assert_eq!(choose_name(&[site("a", 0.0, 0), site("b", 9.0, 0)]), "a");
        let names: Vec<String> = (0..5).map(|n| format!("n{n}")).collect();
        let equal: Vec<_> = names.iter().map(|name| site(name, 1.0, 0)).collect();
        assert_eq!(choose_name(&equal), first(ALICE, &names));
        assert_eq!(chosen(&[], None), None);
    }

    proptest! {
        #[test]
        fn large_key_sets_stay_on_few_nodes(waits in prop::collection::vec(0.0..10f64, 16)) {
            let names: Vec<String> = (0..16).map(|n| format!("n{n}")).collect();
            let sites: Vec<_> = names.iter().zip(waits).map(|(name, wait)| site(name, wait, 0)).collect();
            let own: Vec<_> = rendezvous(ALICE, sites.clone()).iter().take(2).map(|site| site.name.to_owned()).collect();
            prop_assert!(own.contains(&chosen(&sites, Some(2)).unwrap()));
        }
    }
}
