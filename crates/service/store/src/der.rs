//! The part of DER and X.509 that this crate reads. It reads certificates that are already verified
//! as signed by our CA, and verifies nothing itself.

use tacit_foreign::plain;

pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;
pub(crate) const OBJECT: u8 = 0x06;
pub(crate) const OCTETS: u8 = 0x04;
/// UTF8String and PrintableString.
pub(crate) const TEXTS: [u8; 2] = [0x0c, 0x13];
const INTEGER: u8 = 0x02;
const BOOLEAN: u8 = 0x01;
/// UTCTime and GeneralizedTime.
const TIMES: [u8; 2] = [0x17, 0x18];
/// Explicit tags of a certificate's version and extensions.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// Content of the object identifier of alternative names.
const NAMES: &[u8] = &[0x55, 0x1d, 0x11];
/// Tags of a DNS name and of an IP address among alternative names.
const DNS: u8 = 0x82;
const ADDRESS: u8 = 0x87;

/// Fields of a certificate, as slices of its bytes.
pub(crate) struct Parts<'a> {
    /// The serial number, big endian, without leading zeros.
    pub(crate) serial: &'a [u8],
    /// Content of the validity.
    validity: &'a [u8],
    /// Content of the subject.
    pub(crate) subject: &'a [u8],
    /// The public key with its algorithm, tag and length included.
    pub(crate) key: &'a [u8],
    /// Contents of the extensions.
    extensions: &'a [u8],
}

impl<'a> Parts<'a> {
    /// Reads a certificate (DER); `None` if the bytes are not a certificate.
    pub(crate) fn of(certificate: &'a [u8]) -> Option<Self> {
        let (_, whole, _) = element(certificate)?;
        let (_, mut fields, _) = element(whole)?;
        if fields.first() == Some(&VERSION) {
            fields = element(fields)?.2;
        }
        let (INTEGER, mut serial, mut fields) = element(fields)? else { return None };
        while let [0, rest @ ..] = serial {
            serial = rest;
        }
        // Skips signature algorithm and issuer.
        for _ in 0..2 {
            fields = element(fields)?.2;
        }
        let (SEQUENCE, validity, fields) = element(fields)? else { return None };
        let (SEQUENCE, subject, fields) = element(fields)? else { return None };
        let (SEQUENCE, _, rest) = element(fields)? else { return None };
        let key = &fields[..fields.len() - rest.len()];
        let extensions = match elements(rest)?.into_iter().find(|(tag, _)| *tag == EXTENSIONS) {
            Some((_, content)) => expect(content, SEQUENCE)?,
            None => &[],
        };
        Some(Self { serial, validity, subject, key, extensions })
    }

    /// First and last second of the validity, in seconds since 1970.
    pub(crate) fn validity(&self) -> Option<[u64; 2]> {
        let times = elements(self.validity)?;
        let [(first, from), (last, until)] = times.as_slice() else { return None };
        Some([seconds(*first, from)?, seconds(*last, until)?])
    }

    /// The names and addresses that the certificate is for.
    pub(crate) fn hosts(&self) -> Option<Vec<String>> {
        let mut hosts = Vec::new();
        for (_, extension) in elements(self.extensions)? {
            let mut fields = elements(extension)?;
            fields.retain(|(tag, _)| *tag != BOOLEAN);
            let [(OBJECT, name), (OCTETS, value)] = fields.as_slice() else { return None };
            if *name == NAMES {
                for (tag, content) in elements(expect(value, SEQUENCE)?)? {
                    hosts.extend(host(tag, content)?);
                }
            }
        }
        Some(hosts)
    }
}

fn host(tag: u8, content: &[u8]) -> Option<Option<String>> {
    use std::net::{Ipv4Addr, Ipv6Addr};
    Some(match (tag, content.len()) {
        (DNS, _) => Some(plain(str::from_utf8(content).ok()?)),
        (ADDRESS, 4) => Some(Ipv4Addr::from(<[u8; 4]>::try_from(content).ok()?).to_string()),
        (ADDRESS, 16) => Some(Ipv6Addr::from(<[u8; 16]>::try_from(content).ok()?).to_string()),
        _ => None,
    })
}

/// Parses a time of a certificate: `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`, in UTC.
fn seconds(tag: u8, content: &[u8]) -> Option<u64> {
    let digits = content.strip_suffix(b"Z").filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
    let (year, rest) = match (tag == TIMES[0], digits.len()) {
        (true, 12) => (1950 + (number(&digits[..2]) + 50) % 100, &digits[2..]),
        (false, 14) if tag == TIMES[1] => (number(&digits[..4]), &digits[4..]),
        _ => return None,
    };
    let [month, day, hour, minute, second] = [0, 1, 2, 3, 4].map(|i: usize| number(&rest[2 * i..2 * i + 2]));
    let fits = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second < 60;
    let days = days(year, month, day).filter(|_| fits)?;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Reads a number from ASCII digits.
fn number(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |n, digit| 10 * n + u64::from(digit - b'0'))
}

/// Days from 1970 to a date of the Gregorian calendar; `None` before.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    // The "days from civil" algorithm: years begin on 1 March, so that the leap day is their last
    // day. Day 0 is 1 March of year 0, 719,468 days before 1970.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    days.checked_sub(719_468)
}

/// Year, month and day of a number of days after 1970.
pub(crate) fn date(days: u64) -> [u64; 3] {
    // The inverse, "civil from days": day 0 is 1 March of year 0, and 400 years have 146,097 days.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = [day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 }];
    [400 * era + year + u64::from(date[1] <= 2), date[1], date[0]]
}

fn expect(bytes: &[u8], tag: u8) -> Option<&[u8]> {
    element(bytes).filter(|(found, ..)| *found == tag).map(|(_, content, _)| content)
}

/// Tag and content of the first DER element, and the rest of the bytes.
pub(crate) fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |n, &digit| n << 8 | usize::from(digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// The DER elements that follow each other in `bytes`; `None` if the bytes are anything else.
pub(crate) fn elements(mut bytes: &[u8]) -> Option<Vec<(u8, &[u8])>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (tag, content, rest) = element(bytes)?;
        found.push((tag, content));
        bytes = rest;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, PublicKeyData, date_time_ymd};
    use std::time::Duration;

    #[test]
    fn dates_are_counted_over_centuries() {
        for (date, want) in [
            ([1970, 1, 1], 0),
            ([1972, 2, 29], 789),
            ([2000, 3, 1], 11_017),
            ([2026, 11, 22], 20_779),
            ([2100, 3, 1], 47_541),
        ] {
            assert_eq!(days(date[0], date[1], date[2]), Some(want), "{date:?}");
            assert_eq!(super::date(want), date);
        }
        assert!((0..100_000).all(|day| matches!(super::date(day), [y, m, d] if days(y, m, d) == Some(day))));
        assert_eq!(days(1969, 12, 31), None);
        assert_eq!(seconds(0x17, b"500101000000Z"), None, "1950");
        assert_eq!(seconds(0x17, b"491231235959Z"), Some(2_524_607_999));
        assert_eq!(seconds(0x18, b"20500101000000Z"), Some(2_524_608_000));
        for bad in ["20501301000000Z", "2050010100000Z", "20500101000000", "2050010124000aZ", "20500101240000Z"] {
            assert_eq!(seconds(0x18, bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn a_certificate_says_when_for_whom_and_with_which_key() {
        let hosts = ["localhost", "*.example.org", "127.0.0.1", "::1"].map(String::from);
        let mut params = CertificateParams::new(hosts.clone()).unwrap();
        params.not_before = date_time_ymd(2026, 11, 22) + Duration::from_secs(3661);
        params.not_after = date_time_ymd(2060, 1, 2);
        let key = KeyPair::generate().unwrap();
        let der = params.self_signed(&key).unwrap().der().to_vec();
        let parts = Parts::of(&der).unwrap();
        assert_eq!(parts.validity(), Some([20_779 * 86_400 + 3661, 32_873 * 86_400]));
        assert_eq!(parts.hosts().unwrap(), hosts);
        assert_eq!(parts.key, key.subject_public_key_info());
        // A certificate that is cut short is `None`, without a panic.
        assert!((0..der.len()).all(|n| Parts::of(&der[..n]).is_none()));
        assert_eq!(element(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff, 0]), None);
    }
}
