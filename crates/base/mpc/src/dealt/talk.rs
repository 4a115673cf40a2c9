//! Online messages of dealt gates, in protocol order.

use tacit_net::TrafficModel;

use super::{DealtGate, Exchanges, LookUp};
use crate::codec::Packed;
use crate::gate::WrapSpec;

impl DealtGate {
    /// Adds the messages of a batch.
    pub fn talk(&self, talk: &mut TrafficModel) {
        let (plane, masked) = (self.n.div_ceil(8), self.masked_bits() * self.n.div_ceil(8));
        self.opened().into_iter().for_each(|width| talk.down(Packed::len_bytes(self.n, width)));
        talk.down(masked);
        talk.up(masked);
        if self.exchanges == Exchanges::Two {
            talk.both(&[plane]);
        }
        self.values.iter().for_each(|value| talk.up(Packed::len_bytes(self.n, value.width())));
    }
}

impl LookUp {
    /// Adds the messages of a batch.
    pub fn talk(&self, talk: &mut TrafficModel) {
        let widths = [self.index_bits(), self.entries().out_bits(), self.width];
        let [index, bits, differences] = widths.map(|width| Packed::len_bytes(self.n(), width));
        talk.down(index);
        if let Some(bytes) = self.key_bytes() {
            talk.down(bytes);
        }
        talk.down(bits);
        talk.up(bits);
        talk.up(differences);
    }
}

/// Adds the messages of a dealt widening.
pub fn widen_talk(spec: &WrapSpec, talk: &mut TrafficModel) {
    talk.down(spec.n.div_ceil(8));
    talk.up(Packed::len_bytes(spec.n, spec.extra));
}
