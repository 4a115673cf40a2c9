//! Damages every message of the protocol in every way that a peer or a line can. Both parties must end
//! with an error, without a panic and before the stall timeout. OTs and lattices are real; each run
//! damages one frame.

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::net::{Net, same_size};
use tacit_arith::prg::Prg;
use tacit_backends::BackendError;
use tacit_backends::cheetah::{ClientParty, Options, Plan, ServerParty, compile};
use tacit_backends::ring::{Op, Weights};
use tacit_graph::geometry::Window;
use tacit_mpc::Role;
use tacit_net::{Channel, HEADER_BYTES, MemTransport, Transport};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Damage {
    None,
    /// Flips one bit of the payload, or of the header if there is no payload.
    FlipPayload,
    /// Flips one bit of the tag, the length or the checksum.
    FlipHeader,
    /// Ends the frame half-way, and the line with it.
    Truncate,
    /// Adds one byte, with a checksum that fits.
    Longer,
    /// Removes one byte, with a checksum that fits.
    Shorter,
    /// Changes the content, with a checksum that fits, as a malicious peer would.
    Content,
}

struct Damaging {
    inner: MemTransport,
    pending: Vec<u8>,
    frame: u64,
    target: u64,
    damage: Damage,
    cut: bool,
    /// Tags of the frames so far.
    tags: Arc<Mutex<Vec<u16>>>,
}

impl Damaging {
    fn forward(&mut self) -> io::Result<()> {
        while self.pending.len() >= HEADER_BYTES {
            let word = u32::from_le_bytes([self.pending[2], self.pending[3], self.pending[4], self.pending[5]]);
            let end = HEADER_BYTES + (word & 0x7fff_ffff) as usize;
            if self.pending.len() < end {
                break;
            }
            let rest = self.pending.split_off(end);
            let mut frame = std::mem::replace(&mut self.pending, rest);
            self.tags.lock().unwrap().push(u16::from_le_bytes([frame[0], frame[1]]));
            if self.frame == self.target {
                self.spoil(&mut frame);
            }
            self.frame += 1;
            self.inner.write_all(&frame)?;
            if self.cut {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
        }
        Ok(())
    }

    fn spoil(&mut self, frame: &mut Vec<u8>) {
        let spot = self.target as usize * 7919;
        match self.damage {
            Damage::None => {}
            Damage::FlipPayload => {
                let byte =
                    if frame.len() > HEADER_BYTES { HEADER_BYTES + spot % (frame.len() - HEADER_BYTES) } else { 0 };
                frame[byte] ^= 1 << (spot % 8);
            }
            Damage::FlipHeader => frame[spot % HEADER_BYTES] ^= 1 << (spot / HEADER_BYTES % 8),
            Damage::Truncate => {
                frame.truncate(frame.len() / 2);
                self.cut = true;
            }
            Damage::Longer => frame.push(0x5a),
            Damage::Shorter => frame.truncate((frame.len() - 1).max(HEADER_BYTES)),
            Damage::Content => frame[HEADER_BYTES..].iter_mut().for_each(|b| *b = b.wrapping_mul(167).wrapping_add(13)),
        }
        if matches!(self.damage, Damage::Longer | Damage::Shorter | Damage::Content) {
            let len = (frame.len() - HEADER_BYTES) as u32;
            frame[2..6].copy_from_slice(&len.to_le_bytes());
            let mut crc = crc32fast::Hasher::new();
            crc.update(&self.frame.to_le_bytes());
            crc.update(&frame[..6]);
            crc.update(&frame[HEADER_BYTES..]);
            frame[6..10].copy_from_slice(&crc.finalize().to_le_bytes());
        }
    }
}

impl Read for Damaging {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buf)
    }
}

impl Write for Damaging {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if self.cut {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.pending.extend_from_slice(buf);
        self.forward()?;
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl Transport for Damaging {
    fn peer(&self) -> String {
        "damaged memory".into()
    }

    fn set_stall_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.inner.set_stall_timeout(timeout)
    }

    fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.inner.set_deadline(deadline);
    }
}

/// A model at both parties, and an input.
struct Case {
    plan: Arc<Plan>,
    weights: Arc<Weights>,
    input: Vec<i64>,
}

/// A network with every kind of message.
fn case() -> Case {
    let mut net = Net::new(vec![2, 6, 6], 30, 3);
    let c = net.conv(0, same_size(3, 3), 30);
    let t = net.truncate(c, 6);
    let p = net.pool(t, Op::MaxPool(Window { kernel: [2, 2], stride: [2, 2], pads: [0; 4] }));
    let r = net.relu(p, 30);
    let f = net.flatten(r);
    let l = net.linear(f, 5, 28);
    let a = net.arg_max(l, 8);
    let (graph, weights, input) = net.finish(a, 3);
    let plan = Arc::new(compile(graph, Options::default()).unwrap());
    Case { plan, weights: Arc::new(weights), input }
}

/// The client's values; the server has none.
type PartyResult = Result<Option<Vec<i64>>, BackendError>;

fn party(case: &Case, role: Role, mut channel: Channel) -> PartyResult {
    let prg = Prg::from_os().unwrap();
    let output = match role {
        Role::Client => {
            let mut party = ClientParty::new(case.plan.clone(), prg);
            party.setup(&mut channel)?;
            let material = party.offline(&mut channel)?;
            Some(party.online(&mut channel, material, &case.input, &mut |_, _| {})?)
        }
        Role::Server => {
            let mut party = ServerParty::new(case.plan.clone(), case.weights.clone(), prg);
            party.setup(&mut channel)?;
            let material = party.offline(&mut channel)?;
            party.online(&mut channel, material, &mut |_, _| {})?;
            None
        }
    };
    channel.flush()?;
    Ok(output)
}

/// Runs both parties with one frame from `sender` damaged. Returns how both ended, and the tags of the
/// sender's frames.
fn run(case: &Case, sender: Role, target: u64, damage: Damage) -> (PartyResult, PartyResult, Vec<u16>) {
    let (client, server) = MemTransport::pair();
    let tags = Arc::new(Mutex::new(Vec::new()));
    let log = tags.clone();
    let spoil = |inner| Damaging { inner, pending: Vec::new(), frame: 0, target, damage, cut: false, tags: log };
    let (mut client, mut server): (Box<dyn Transport>, Box<dyn Transport>) = match sender {
        Role::Client => (Box::new(spoil(client)), Box::new(server)),
        Role::Server => (Box::new(client), Box::new(spoil(server))),
    };
    let stall = Duration::from_secs(60);
    client.set_stall_timeout(stall).unwrap();
    server.set_stall_timeout(stall).unwrap();
    let started = Instant::now();
    let (client, server) = std::thread::scope(|scope| {
        let server = scope.spawn(|| party(case, Role::Server, Channel::new(server)));
        let client = party(case, Role::Client, Channel::new(client));
        (client, server.join().unwrap())
    });
    assert!(started.elapsed() < stall, "{damage:?} of frame {target} from the {sender:?} hung");
    let tags = std::mem::take(&mut *tags.lock().unwrap());
    (client, server, tags)
}

/// Damages every frame: the first two of each kind of message in every way, later ones in one way each.
fn damage_every_frame(sender: Role) {
    const DAMAGES: [Damage; 5] =
        [Damage::FlipPayload, Damage::FlipHeader, Damage::Truncate, Damage::Longer, Damage::Shorter];
    let case = case();
    let (client, server, tags) = run(&case, sender, u64::MAX, Damage::None);
    let (Ok(Some(expected)), Ok(None)) = (client, server) else { panic!("the undamaged run must succeed") };
    assert!(tags.len() > 30, "{} frames", tags.len());
    for (target, tag) in tags.iter().enumerate() {
        let early = tags[..target].iter().filter(|t| *t == tag).count() < 2;
        for (_, &damage) in DAMAGES.iter().enumerate().filter(|(i, _)| early || target % DAMAGES.len() == *i) {
            let (client, server, _) = run(&case, sender, target as u64, damage);
            let receiver = if sender == Role::Client { &server } else { &client };
            assert!(receiver.is_err(), "{damage:?} of frame {target} from the {sender:?} went unnoticed");
            if let Ok(Some(values)) = &client {
                // The client may have been done before the server noticed; then its answer must be right.
                assert_eq!(values, &expected, "{damage:?} of frame {target} from the {sender:?} gave a wrong answer");
            }
        }
        if early {
            // Semi-honest security: other content of the right form may change the answer, but must not panic
            // or hang.
            drop(run(&case, sender, target as u64, Damage::Content));
        }
    }
}

#[test]
fn damage_to_any_frame_of_the_client_is_noticed() {
    damage_every_frame(Role::Client);
}

#[test]
fn damage_to_any_frame_of_the_server_is_noticed() {
    damage_every_frame(Role::Server);
}
