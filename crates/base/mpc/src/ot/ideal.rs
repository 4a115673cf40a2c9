//! The ideal functionality, simulated with a shared seed: for tests only. Nothing is secret, and
//! nothing is sent.

use tacit_arith::bits::Bits;
use tacit_arith::prg::{Prg, Seed};
use tacit_net::{Channel, Sides};

use super::{
    Ot, RandomOtReceiver, RandomOtSender, ReceiverPlanes, ReceiverWords, SenderPlanes, SenderWords, check_planes,
};
use crate::{MpcError, draw_words};

/// Ideal sender; see [`pair`].
pub struct IdealSender(Prg);
/// Ideal receiver; see [`pair`].
pub struct IdealReceiver(Prg);

/// A matching sender and receiver.
pub fn pair(seed: u64) -> (IdealSender, IdealReceiver) {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    (IdealSender(Prg::from_seed(Seed(bytes))), IdealReceiver(Prg::from_seed(Seed(bytes))))
}

/// Both directions for both parties.
pub fn ots(seed: u64) -> Sides<Ot<IdealSender, IdealReceiver>> {
    let (client_sender, server_receiver) = pair(2 * seed);
    let (server_sender, client_receiver) = pair(2 * seed + 1);
    Sides {
        client: Ot { sender: client_sender, receiver: client_receiver },
        server: Ot { sender: server_sender, receiver: server_receiver },
    }
}

fn bits(prg: &mut Prg, n: usize, k: usize) -> Vec<Bits> {
    (0..k).map(|_| Bits::random(prg, n)).collect()
}

fn words(prg: &mut Prg, n: usize) -> Vec<u64> {
    draw_words(prg, n, 64).to_vec()
}

impl RandomOtSender for IdealSender {
    fn reserve(&mut self, _n: usize) {}

    fn planes(&mut self, _ch: &mut Channel, n: usize, k: usize) -> Result<SenderPlanes, MpcError> {
        check_planes(k)?;
        let _choice = Bits::random(&mut self.0, n);
        Ok(SenderPlanes { m0: bits(&mut self.0, n, k), m1: bits(&mut self.0, n, k) })
    }

    fn words(&mut self, _ch: &mut Channel, n: usize) -> Result<SenderWords, MpcError> {
        let _choice = Bits::random(&mut self.0, n);
        Ok(SenderWords { m0: words(&mut self.0, n), m1: words(&mut self.0, n) })
    }
}

impl RandomOtReceiver for IdealReceiver {
    fn reserve(&mut self, _n: usize) {}

    fn planes(&mut self, _ch: &mut Channel, n: usize, k: usize) -> Result<ReceiverPlanes, MpcError> {
        check_planes(k)?;
        let choice = Bits::random(&mut self.0, n);
        let (m0, m1) = (bits(&mut self.0, n, k), bits(&mut self.0, n, k));
        let m = m0.iter().zip(&m1).map(|(a, b)| a.xor(&a.xor(b).and(&choice))).collect();
        Ok(ReceiverPlanes { choice, m })
    }

    fn words(&mut self, _ch: &mut Channel, n: usize) -> Result<ReceiverWords, MpcError> {
        let choice = Bits::random(&mut self.0, n);
        let (m0, m1) = (words(&mut self.0, n), words(&mut self.0, n));
        let m = choice.iter().zip(m0.into_iter().zip(m1)).map(|(c, (a, b))| if c { b } else { a }).collect();
        Ok(ReceiverWords { choice, m })
    }
}
