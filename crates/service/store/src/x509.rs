//! Certificates as the crate `x509-cert` decodes them: strictly, whole or not at all. They are
//! already verified as signed by our CA; nothing here verifies them.

use std::net::IpAddr;
use tacit_foreign::plain;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::{Certificate, der::Decode};

pub(crate) fn decode(certificate: &[u8]) -> Option<Certificate> {
    Certificate::from_der(certificate).ok()
}

/// The names and addresses that a certificate is for; `None` if it names anything else, or they are
/// not readable.
pub(crate) fn hosts(certificate: &Certificate) -> Option<Vec<String>> {
    match certificate.tbs_certificate().get_extension().ok()? {
        Some((_, SubjectAltName(names))) => names.iter().map(host).collect(),
        None => Some(Vec::new()),
    }
}

fn host(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::DnsName(name) => Some(plain(name.as_str())),
        GeneralName::IpAddress(address) => {
            let address = address.as_bytes();
            let v4 = <[u8; 4]>::try_from(address).map(IpAddr::from);
            let address = v4.or_else(|_| <[u8; 16]>::try_from(address).map(IpAddr::from));
            address.ok().map(|address| address.to_string())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::{CertificateInfo, Validity, fingerprint};
    use rcgen::{CertificateParams, DnType, KeyPair, PublicKeyData, date_time_ymd};
    use std::time::Duration;
    use x509_cert::der::DateTime;
    use x509_cert::time::Time;

    fn days(date: [u16; 3]) -> Option<u64> {
        let [month, day] = [date[1], date[2]].map(|n| u8::try_from(n).unwrap());
        DateTime::new(date[0], month, day, 0, 0, 0).ok().map(|date| date.unix_duration().as_secs() / 86_400)
    }

    fn seconds(tag: u8, content: &[u8]) -> Option<u64> {
        let time = [&[tag, content.len() as u8], content].concat();
        Time::from_der(&time).ok().map(|time| time.to_unix_duration().as_secs())
    }

    #[test]
    fn formats_and_decodes_dates_over_centuries() {
        let format_day = |day: u64| Validity { from: 0, until: day * 86_400 }.until_utc();
        for (date, want) in [
            ([1970, 1, 1], 0),
            ([1972, 2, 29], 789),
            ([2000, 3, 1], 11_017),
            ([2026, 11, 22], 20_779),
            ([2100, 3, 1], 47_541),
        ] {
            assert_eq!(days(date), Some(want), "{date:?}");
            assert_eq!(format_day(want), format!("{}-{:02}-{:02} 00:00 UTC", date[0], date[1], date[2]));
        }
        for day in 0..100_000 {
            let text = format_day(day);
            let mut date = text[..10].split('-').map(|n| n.parse().unwrap());
            assert_eq!(days(std::array::from_fn(|_| date.next().unwrap())), Some(day), "{text}");
        }
        assert_eq!(days([1969, 12, 31]), None);
        assert_eq!(seconds(0x17, b"500101000000Z"), None, "1950");
        assert_eq!(seconds(0x17, b"491231235959Z"), Some(2_524_607_999));
        assert_eq!(seconds(0x18, b"20500101000000Z"), Some(2_524_608_000));
        for bad in ["20501301000000Z", "2050010100000Z", "20500101000000", "2050010124000aZ", "20500101240000Z"] {
            assert_eq!(seconds(0x18, bad.as_bytes()), None, "{bad}");
        }
        let late = Validity { from: 0, until: u64::MAX };
        assert_eq!(late.until_utc(), "9999-12-31 23:59 UTC", "no certificate lasts longer");
    }

    fn certificate(hosts: &[String]) -> (Vec<u8>, KeyPair) {
        let mut params = CertificateParams::new(hosts).unwrap();
        params.not_before = date_time_ymd(2026, 11, 22) + Duration::from_secs(3661);
        params.not_after = date_time_ymd(2060, 1, 2);
        params.distinguished_name.push(DnType::OrganizationalUnitName, "tacit-operator");
        let key = KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap().der().to_vec(), key)
    }

    #[test]
    fn reads_validity_hosts_and_key() {
        let hosts = ["localhost", "*.example.org", "127.0.0.1", "::1"].map(String::from);
        let (der, key) = certificate(&hosts);
        let validity = Validity { from: 20_779 * 86_400 + 3661, until: 32_873 * 86_400 };
        assert_eq!(Validity::from_certificate(&der), Some(validity));
        assert_eq!(super::hosts(&decode(&der).unwrap()).unwrap(), hosts);
        assert_eq!(super::hosts(&decode(&certificate(&[]).0).unwrap()), Some(vec![]));
        assert_eq!(fingerprint(&der).unwrap().0, *blake3::hash(&key.subject_public_key_info()).as_bytes());
        // A certificate that is cut short is `None`, without a panic.
        assert!((0..der.len()).all(|n| decode(&der[..n]).is_none()));
        assert_eq!(decode(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff, 0]), None);
    }

    #[test]
    fn changed_byte_never_yields_operator() {
        let (der, _) = certificate(&["localhost", "127.0.0.1"].map(String::from));
        assert!(CertificateInfo::from_der("ops", &der).is_some_and(|info| info.purpose.to_string() == "operator"));
        for index in 0..der.len() {
            for change in [1, 0x80, 0xff] {
                let mut changed = der.clone();
                changed[index] ^= change;
                if let Some(info) = CertificateInfo::from_der("ops", &changed) {
                    let is_named = changed.windows(14).any(|bytes| bytes == b"tacit-operator");
                    assert!(is_named || info.purpose.to_string() != "operator", "byte {index}");
                }
            }
        }
    }
}
