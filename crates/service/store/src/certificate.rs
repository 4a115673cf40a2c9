//! The content of certificates: identity, validity and renewal.
use crate::StoreError;
use crate::clock::now;
use crate::role::Role;
use crate::serial::Serial;
use crate::x509::{decode, hosts};
use std::fmt;
use tacit_ids::ClientId;
use x509_cert::der::{DateTime, Encode};

/// Name of the server's certificate in a key folder.
pub(crate) const SERVER: &str = "server";
/// Name of the dealer's certificate in a key folder.
pub const DEALER: &str = "dealer";
const DAY: u64 = 24 * 3600;

/// BLAKE3 digest of a certificate's public key; `None` if the bytes are not a certificate (DER). A
/// renewed certificate keeps its fingerprint, and so its access, quotas and stored material.
#[must_use]
pub fn fingerprint(certificate: &[u8]) -> Option<ClientId> {
    let key = decode(certificate)?.tbs_certificate().subject_public_key_info().to_der().ok()?;
    Some(ClientId(*blake3::hash(&key).as_bytes()))
}

/// First and last second of a certificate's validity, since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// First second.
    pub from: u64,
    /// Last second.
    pub until: u64,
}

/// State of a certificate at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Valid, with time left.
    Good,
    /// Due for renewal: at most a day is left, or a tenth of its life.
    RenewalDue,
    /// No longer valid.
    Expired,
    /// Not valid yet.
    Early,
}

impl Validity {
    /// Reads the validity of a certificate (DER); `None` if the bytes are not a certificate.
    #[must_use]
    pub fn from_certificate(certificate: &[u8]) -> Option<Self> {
        let validity = *decode(certificate)?.tbs_certificate().validity();
        let [from, until] = [validity.not_before, validity.not_after].map(|time| time.to_unix_duration().as_secs());
        Some(Self { from, until })
    }

    /// A validity of `days` days from now on. It begins an hour earlier, for machines whose clocks
    /// are behind.
    ///
    /// # Errors
    /// [`StoreError::Clock`].
    pub fn for_days(days: u32) -> Result<Self, StoreError> {
        const CLOCK_LAG_S: u64 = 3600;
        let now = now()?;
        Ok(Self { from: now - CLOCK_LAG_S, until: now + u64::from(days) * DAY })
    }

    /// Formats the last second: `2026-11-22 20:39 UTC`, 9999 at the latest, as in certificates.
    #[must_use]
    pub fn until_utc(self) -> String {
        let end = DateTime::from_unix_duration(std::time::Duration::from_secs(self.until));
        let end = end.unwrap_or(DateTime::INFINITY);
        let [month, day, hour, minute] = [end.month(), end.day(), end.hour(), end.minutes()];
        format!("{}-{month:02}-{day:02} {hour:02}:{minute:02} UTC", end.year())
    }

    /// The state at a moment. Renewal is due in the last day or the last tenth of the life,
    /// whichever is longer, but never in the first half.
    #[must_use]
    pub fn standing_at(self, now: u64) -> Standing {
        let (remaining, life) = (self.until.saturating_sub(now), self.until.saturating_sub(self.from));
        let soon = DAY.max(life / 10).min(life / 2);
        match () {
            () if now > self.until => Standing::Expired,
            () if now < self.from => Standing::Early,
            () if remaining <= soon => Standing::RenewalDue,
            () => Standing::Good,
        }
    }

    /// Advice for the owner now; `None` if there is time left. `name` is the base name of the file.
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
        let certificate = format!("the certificate of `{name}`");
        match self.standing_at(now) {
            Standing::Good => None,
            Standing::Early => Some(format!("{certificate} is not valid yet, by this machine's clock: set the clock")),
            Standing::Expired => {
                let since = HumanDuration(now - self.until);
                Some(format!("{certificate} has expired {since} ago, and nobody takes it: {renewal}"))
            }
            Standing::RenewalDue => {
                Some(format!("{certificate} expires in {}: {renewal}", HumanDuration(self.until - now)))
            }
        }
    }
}

/// A length of time in whole days, hours or minutes.
struct HumanDuration(u64);

impl fmt::Display for HumanDuration {
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
pub struct CertificateInfo {
    /// Name of its file, without `.pem`.
    pub name: String,
    /// What it may be used for.
    pub purpose: Purpose,
    /// Fingerprint of its key.
    pub fingerprint: ClientId,
    /// Serial number, which tells certificates for the same key apart.
    pub serial: Serial,
    /// Its validity.
    pub validity: Validity,
    /// Its names and addresses.
    pub hosts: Vec<String>,
}

/// Purpose of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Signing other certificates.
    Ca,
    /// Identifying a server.
    Server,
    /// Identifying a client, with its role.
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

impl CertificateInfo {
    /// Describes a file's certificate (DER); `None` if the bytes are not a certificate.
    pub(crate) fn from_der(name: &str, certificate: &[u8]) -> Option<Self> {
        // No client can have these names.
        let purpose = match name {
            "ca" => Purpose::Ca,
            SERVER | DEALER => Purpose::Server,
            _ => Purpose::Client(Role::from_certificate(certificate)),
        };
        Some(Self {
            name: name.to_owned(),
            purpose,
            fingerprint: fingerprint(certificate)?,
            serial: Serial::from_certificate(certificate)?,
            validity: Validity::from_certificate(certificate)?,
            hosts: hosts(&decode(certificate)?)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewal_is_due_a_day_or_tenth_before_expiry() {
        let standing = |days: u64, remaining: u64| {
            Validity { from: 10 * DAY, until: (10 + days) * DAY }.standing_at((10 + days) * DAY - remaining)
        };
        assert_eq!(standing(100, 10 * DAY + 1), Standing::Good);
        assert_eq!(standing(100, 10 * DAY), Standing::RenewalDue);
        assert_eq!(standing(5, DAY + 1), Standing::Good);
        assert_eq!(standing(5, DAY), Standing::RenewalDue);
        // A certificate for one day is not due for renewal at once.
        assert_eq!(standing(1, DAY / 2 + 1), Standing::Good);
        assert_eq!(standing(1, DAY / 2), Standing::RenewalDue);
        assert_eq!(standing(1, 0), Standing::RenewalDue);
        assert_eq!(Validity { from: 0, until: 20_779 * DAY + 74_389 }.until_utc(), "2026-11-22 20:39 UTC");
        let short = Validity { from: 100, until: 200 };
        assert_eq!([99, 201].map(|now| short.standing_at(now)), [Standing::Early, Standing::Expired]);
        let advice = |name| short.advice_at(name, 200).unwrap();
        assert!(advice("server").contains("`server` expires in 0 minutes"));
        assert!(advice("server").contains("keys renew"));
        assert!(advice("ca").contains("new keys for all"));
        assert!(short.advice_at("ca", 120).is_none());
        assert_eq!([90, 7200, 2 * DAY].map(|s| HumanDuration(s).to_string()), ["1 minutes", "2 hours", "2 days"]);
    }
}
