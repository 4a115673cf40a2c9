//! What certificates say: who is known by one, for how long, and when to renew it.
use crate::StoreError;
use crate::clock::now;
use crate::der::{Parts, date};
use crate::role::Role;
use crate::serial::Serial;
use std::fmt;
use tacit_ids::ClientId;

const DAY: u64 = 24 * 3600;

/// What a certificate (DER) is known by: the BLAKE3 digest of its public key. One that is renewed for the
/// same key is the same client's: rules of access, quotas and stored material stay with it. `None` if it is
/// no certificate.
#[must_use]
pub fn fingerprint(certificate: &[u8]) -> Option<ClientId> {
    Some(ClientId(*blake3::hash(Parts::of(certificate)?.key).as_bytes()))
}

/// From when and until when a certificate is valid, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// First second.
    pub from: u64,
    /// Last second.
    pub until: u64,
}

/// How a certificate stands at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is good for some time.
    Good,
    /// It is to be renewed: it has a day left at most, or a tenth of its life.
    Ends,
    /// Nobody takes it any more.
    Expired,
    /// Nobody takes it yet.
    Early,
}

impl Validity {
    /// Of a certificate (DER); `None` if it is none.
    #[must_use]
    pub fn of(certificate: &[u8]) -> Option<Self> {
        let [from, until] = Parts::of(certificate)?.validity()?;
        Some(Self { from, until })
    }

    /// From now on for so many days. What other clocks are behind does not count: a certificate is often used
    /// right after it was made.
    ///
    /// # Errors
    /// [`StoreError::Clock`].
    pub fn days(days: u32) -> Result<Self, StoreError> {
        const BEHIND: u64 = 3600;
        let now = now()?;
        Ok(Self { from: now - BEHIND, until: now + u64::from(days) * DAY })
    }

    /// Its last second, for people: `2026-11-22 20:39 UTC`.
    #[must_use]
    pub fn until_utc(self) -> String {
        let ([year, month, day], second) = (date(self.until / DAY), self.until % DAY);
        format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", second / 3600, second / 60 % 60)
    }

    /// How it stands at a moment. Its end is near a day or a tenth of its life before, but never in the first
    /// half of its life.
    #[must_use]
    pub fn at(self, now: u64) -> Standing {
        let (left, life) = (self.until.saturating_sub(now), self.until.saturating_sub(self.from));
        let soon = DAY.max(life / 10).min(life / 2);
        match () {
            () if now > self.until => Standing::Expired,
            () if now < self.from => Standing::Early,
            () if left <= soon => Standing::Ends,
            () => Standing::Good,
        }
    }

    /// What its owner is to be told now; `None` if it is good for some time. `name` is that of its file.
    ///
    /// # Errors
    /// [`StoreError::Clock`].
    pub fn advice(self, name: &str) -> Result<Option<String>, StoreError> {
        Ok(self.advice_at(name, now()?))
    }

    fn advice_at(self, name: &str, now: u64) -> Option<String> {
        let renewal = match name {
            "ca" => {
                "nothing that it has signed is taken after that; make another (`tacit keys init`) and new keys for all"
            }
            _ => "renew it where ca.key is (`tacit keys renew`)",
        };
        match self.at(now) {
            Standing::Good => None,
            Standing::Early => {
                Some(format!("the certificate of `{name}` is not valid yet, by this machine's clock: set the clock"))
            }
            Standing::Expired => Some(format!(
                "the certificate of `{name}` has expired {} ago, and nobody takes it: {renewal}",
                Duration(now - self.until)
            )),
            Standing::Ends => {
                Some(format!("the certificate of `{name}` expires in {}: {renewal}", Duration(self.until - now)))
            }
        }
    }
}

/// A length of time for people.
struct Duration(u64);

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            s if s >= 2 * DAY => write!(f, "{} days", s / DAY),
            s if s >= 7200 => write!(f, "{} hours", s / 3600),
            s => write!(f, "{} minutes", s / 60),
        }
    }
}

/// A certificate of a folder of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Name of its file, without `.pem`.
    pub name: String,
    /// What it may be used for.
    pub purpose: Purpose,
    /// What its key is known by.
    pub fingerprint: ClientId,
    /// What tells it apart from others, for the same key, too.
    pub serial: Serial,
    /// When it is valid.
    pub validity: Validity,
    /// Names and addresses that it is for.
    pub hosts: Vec<String>,
}

/// What a certificate may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Signing others.
    Ca,
    /// A server's.
    Server,
    /// A client's, with its role.
    Client(Role),
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ca => f.write_str("ca"),
            Self::Server => f.write_str("server"),
            Self::Client(role) => role.fmt(f),
        }
    }
}

impl Shown {
    /// Of a certificate (DER) in a file; `None` if it is none.
    pub(crate) fn of(name: &str, certificate: &[u8]) -> Option<Self> {
        // `ca` and `server` are names that no client has.
        let purpose = match name {
            "ca" => Purpose::Ca,
            "server" => Purpose::Server,
            _ => Purpose::Client(Role::of(certificate)),
        };
        let hosts = Parts::of(certificate)?.hosts()?;
        let (fingerprint, validity) = (fingerprint(certificate)?, Validity::of(certificate)?);
        let serial = Serial::of(certificate)?;
        Some(Self { name: name.to_owned(), purpose, fingerprint, serial, validity, hosts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_announced_a_day_or_a_tenth_before() {
        let standing =
            |days: u64, left: u64| Validity { from: 10 * DAY, until: (10 + days) * DAY }.at((10 + days) * DAY - left);
        assert_eq!(standing(100, 10 * DAY + 1), Standing::Good);
        assert_eq!(standing(100, 10 * DAY), Standing::Ends);
        assert_eq!(standing(5, DAY + 1), Standing::Good);
        assert_eq!(standing(5, DAY), Standing::Ends);
        // One that lives a day is not due for renewal from its first moment on.
        assert_eq!(standing(1, DAY / 2 + 1), Standing::Good);
        assert_eq!(standing(1, DAY / 2), Standing::Ends);
        assert_eq!(standing(1, 0), Standing::Ends);
        assert_eq!(Validity { from: 0, until: 20_779 * DAY + 74_389 }.until_utc(), "2026-11-22 20:39 UTC");
        let short = Validity { from: 100, until: 200 };
        assert_eq!([99, 201].map(|now| short.at(now)), [Standing::Early, Standing::Expired]);
        let advice = |name| short.advice_at(name, 200).unwrap();
        assert!(advice("server").contains("`server` expires in 0 minutes") && advice("server").contains("keys renew"));
        assert!(advice("ca").contains("new keys for all") && short.advice_at("ca", 120).is_none());
        assert_eq!([90, 7200, 2 * DAY].map(|s| Duration(s).to_string()), ["1 minutes", "2 hours", "2 days"]);
    }
}
