//! Serial numbers of certificates, which tell two certificates for one key apart.
use crate::x509::decode;
use std::fmt;
use std::str::FromStr;

/// Most bytes of a serial number (RFC 5280, section 4.1.2.2).
const MAX_SERIAL_BYTES: usize = 20;

/// The serial number of a certificate, unique within its CA.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Serial(Box<[u8]>);

impl Serial {
    /// Reads the number of a certificate (DER); `None` if the bytes are not a certificate or the
    /// number is too long.
    #[must_use]
    pub fn from_certificate(certificate: &[u8]) -> Option<Self> {
        let certificate = decode(certificate)?;
        let serial = without_zeros(certificate.tbs_certificate().serial_number().as_bytes());
        (serial.len() <= MAX_SERIAL_BYTES).then(|| Self(serial.into()))
    }

    pub(crate) fn random() -> Result<Vec<u8>, getrandom::Error> {
        let mut bytes = [0; MAX_SERIAL_BYTES];
        getrandom::fill(&mut bytes)?;
        // The first bits make all numbers positive and twenty bytes long.
        bytes[0] = bytes[0] & 0x3f | 0x40;
        Ok(bytes.into())
    }
}

/// In hexadecimal digits; `00` for zero.
impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            [] => f.write_str("00"),
            bytes => bytes.iter().try_for_each(|b| write!(f, "{b:02x}")),
        }
    }
}

/// Text that is not a serial number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no serial number: 1 to 40 hexadecimal digits are, with or without colons between bytes")]
pub struct NotASerial(String);

/// Parses the printed form; also accepts capital letters, colons between bytes, and leading zeros.
impl FromStr for Serial {
    type Err = NotASerial;

    fn from_str(text: &str) -> Result<Self, NotASerial> {
        if text.contains(':') && text.split(':').any(|pair| pair.len() != 2) {
            return Err(not_a_serial(text));
        }
        let digits = text.chars().filter(|c| *c != ':').map(|c| c.to_digit(16).map(|d| d as u8));
        let digits = digits.collect::<Option<Vec<u8>>>().filter(|digits| !digits.is_empty());
        let mut digits = digits.ok_or_else(|| not_a_serial(text))?;
        if digits.len() % 2 == 1 {
            digits.insert(0, 0);
        }
        let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        if bytes.len() > MAX_SERIAL_BYTES {
            return Err(not_a_serial(text));
        }
        Ok(Self(without_zeros(&bytes).into()))
    }
}

fn without_zeros(bytes: &[u8]) -> &[u8] {
    let first = bytes.iter().position(|b| *b != 0).unwrap_or(bytes.len());
    &bytes[first..]
}

fn not_a_serial(text: &str) -> NotASerial {
    NotASerial(text.chars().take(80).flat_map(char::escape_debug).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, SerialNumber};

    #[test]
    fn parses_printed_serials() {
        for (text, shown) in [
            ("1", "01"),
            ("00:01", "01"),
            ("0a:BC:de", "0abcde"),
            ("abc", "0abc"),
            ("0", "00"),
            (&"f".repeat(40), &"f".repeat(40)),
        ] {
            let serial: Serial = text.parse().unwrap();
            assert_eq!(serial.to_string(), shown, "{text}");
            assert_eq!(serial.to_string().parse::<Serial>().unwrap(), serial);
        }
        for text in ["", ":", "0x1", "1:2", "ab:c", "ab:", "gg", "+1", &"f".repeat(41), "\u{1b}"] {
            let why = text.parse::<Serial>().unwrap_err().to_string();
            assert!(why.contains("no serial number"), "{why}");
            assert!(!why.contains('\u{1b}'), "{why}");
        }
    }

    #[test]
    fn reads_serial_of_certificate() {
        let key = KeyPair::generate().unwrap();
        let certificate = |bytes: &[u8]| {
            let mut params = CertificateParams::new(vec![]).unwrap();
            params.serial_number = Some(SerialNumber::from_slice(bytes));
            params.self_signed(&key).unwrap().der().to_vec()
        };
        // A number whose first bit is set is encoded with a leading zero byte.
        for bytes in [&[0xff, 1, 2][..], &[1], &[0x7f; 20]] {
            let text: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(Serial::from_certificate(&certificate(bytes)).unwrap(), text.parse().unwrap());
        }
        assert_eq!(Serial::from_certificate(&certificate(&[1; 21])), None);
        assert_eq!(Serial::from_certificate(b"no certificate"), None);
        let drawn = certificate(&Serial::random().unwrap());
        assert_eq!(Serial::from_certificate(&drawn).unwrap().to_string().len(), 40);
    }
}
