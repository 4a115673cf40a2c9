//! LPN parameter sets of the silent extension. Security estimates and their sources: `docs/parameters.md`,
//! section "LPN"; `docs/scripts/lpn_estimate.py` recomputes them.

/// A parameter set: secret of `2^log_secret` bits, `trees` blocks of `2^depth` positions with one
/// error each. Several LPN instances with separate secrets and errors may run side by side. All
/// instances share the matrix, whose rows are then read once, and their trees are paired by index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LpnParams {
    /// Name for reports.
    pub name: &'static str,
    /// log2 of the length of the LPN secret (k).
    pub log_secret: u32,
    /// log2 of the block length (beta): the depth of a tree.
    pub depth: u32,
    /// Number of blocks (t) of each instance.
    pub trees: usize,
    /// Instances side by side: 1 or 2.
    pub lanes: usize,
    /// Number of expected OTs from which a move to the next larger set pays.
    pub upgrade_at: usize,
}

/// For thousands of OTs: 2^17.6 COTs an extension. Estimated work of the best attack 2^131.7.
pub const SMALL: LpnParams =
    LpnParams { name: "small", log_secret: 14, depth: 7, trees: 1536, lanes: 1, upgrade_at: 160_000 };
/// A step between the two others: 2^20 COTs. 2^130.4.
pub const MEDIUM: LpnParams =
    LpnParams { name: "medium", log_secret: 16, depth: 9, trees: 2048, lanes: 1, upgrade_at: 1_500_000 };
/// For millions of OTs: 2^21.1 COTs an extension. 2^131.9. Its vector of 2 MB stays in the cache,
/// even beside others such as the other direction's.
pub const LARGE: LpnParams =
    LpnParams { name: "large", log_secret: 17, depth: 10, trees: 2176, lanes: 1, upgrade_at: 20_000_000 };
/// For tens of millions: twice 2^22.1 COTs an extension. 2^134.0. Two vectors of 4 MB, side by
/// side, take no longer for an OT than one of 2 MB, and save almost half of the bytes.
pub const HUGE: LpnParams =
    LpnParams { name: "huge", log_secret: 18, depth: 11, trees: 2176, lanes: 2, upgrade_at: usize::MAX };

/// Most COTs under one `delta`; after that its direction bootstraps anew. The bound ends the damage
/// of a leaked `delta` within about 30 large inferences, while the bootstrap's 0.44 MB are small
/// against their traffic: `docs/parameters.md`, section "OT hash".
pub const COTS_PER_DELTA: u64 = 1 << 32;

impl LpnParams {
    /// Outputs of one tree of every instance (beta of each).
    pub const fn leaves(&self) -> usize {
        self.lanes << self.depth
    }

    /// COTs of one extension (n of each instance), including those that the next extension
    /// consumes.
    pub const fn outputs(&self) -> usize {
        self.trees * self.leaves()
    }

    /// COTs that an extension consumes: the LPN secrets, and one per level of every tree.
    pub const fn base(&self) -> usize {
        self.secret() + self.lanes * self.trees * self.depth as usize
    }

    /// Blocks of the secrets of all instances.
    pub const fn secret(&self) -> usize {
        self.lanes << self.log_secret
    }

    /// Blocks that the sender sends for one tree of every instance; the first level needs none.
    pub const fn corrections(&self) -> usize {
        self.lanes * (self.depth as usize - 1)
    }

    /// The set to use after this one when `demand` more OTs are expected.
    pub(super) fn upgrade(&self, demand: usize) -> Option<Self> {
        let larger = match self.log_secret {
            14 => MEDIUM,
            16 => LARGE,
            17 => HUGE,
            _ => return None,
        };
        (demand >= self.upgrade_at).then_some(larger)
    }
}

/// The set of a connection that makes `n` OTs in one direction for each input.
pub fn set_for(n: usize) -> LpnParams {
    let mut set = SMALL;
    while let Some(larger) = set.upgrade(n) {
        set = larger;
    }
    set
}

// Every set must be able to feed itself and the next one.
const _: () = {
    assert!(2 * SMALL.base() < SMALL.outputs() && MEDIUM.base() + SMALL.leaves() < SMALL.outputs());
    assert!(2 * MEDIUM.base() < MEDIUM.outputs() && LARGE.base() + MEDIUM.leaves() < MEDIUM.outputs());
    assert!(2 * LARGE.base() < LARGE.outputs() && HUGE.base() + LARGE.leaves() < LARGE.outputs());
    assert!(2 * HUGE.base() < HUGE.outputs());
    // After a bootstrap any set can be reached before the next one.
    let all = SMALL.outputs() + MEDIUM.outputs() + LARGE.outputs() + HUGE.outputs();
    assert!((all as u64) < COTS_PER_DELTA);
};
