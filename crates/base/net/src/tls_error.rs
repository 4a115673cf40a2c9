//! Explains TLS errors.
use tacit_foreign::plain;

/// The message for a clock that is not set, by which no certificate can be judged.
pub(crate) const NO_TIME: &str = "the clock of this machine is not set (it shows a time before 1970): set it first";

/// Explains a TLS error: what it says about the peer or this party, and what to do.
pub(crate) fn explain(error: &rustls::Error) -> String {
    use rustls::AlertDescription as Alert;
    use rustls::CertificateError as Bad;
    use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage};
    let advice = match error {
        InvalidCertificate(Bad::UnknownIssuer | Bad::BadSignature) => {
            "the peer's certificate is not signed by our CA: both parties need keys of one `tacit keys init`"
        }
        InvalidCertificate(Bad::NotValidYet | Bad::NotValidYetContext { .. }) => {
            "the peer's certificate is not valid yet by the clock of this machine: set the clock"
        }
        rustls::Error::FailedToGetCurrentTime => NO_TIME,
        InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. }) => {
            "the peer's certificate has expired by the clock of this machine: have it renewed (`tacit keys renew`), or set the clock"
        }
        InvalidCertificate(Bad::NotValidForName | Bad::NotValidForNameContext { .. }) => {
            "the server's certificate is for other names: connect by one of them, name one (--server-name), or make keys for this \
             one (`tacit keys init --host`)"
        }
        InvalidCertificate(Bad::InvalidPurpose | Bad::InvalidPurposeContext { .. }) => {
            "the peer's certificate is for something else: a server needs server.pem, a client its own"
        }
        AlertReceived(Alert::UnknownCA | Alert::DecryptError | Alert::CertificateUnknown | Alert::BadCertificate) => {
            "the peer rejects our certificate: it is not signed by the peer's CA; both parties need keys of one `tacit keys init`"
        }
        AlertReceived(Alert::CertificateExpired) => {
            "the peer rejects our certificate: it has expired, or is not valid yet, by the peer's clock; renew it (`tacit keys renew`), or \
             compare both clocks (`tacit keys show`)"
        }
        AlertReceived(Alert::UnsupportedCertificate) => {
            "the peer rejects our certificate: it is for something else; a server needs server.pem, a client its own"
        }
        AlertReceived(Alert::CertificateRequired) | rustls::Error::NoCertificatesPresented => {
            "a client without a certificate is refused"
        }
        AlertReceived(Alert::NoApplicationProtocol) | rustls::Error::NoApplicationProtocol => {
            "the peer speaks something else over TLS, or another version of tacit"
        }
        InvalidMessage(_) => "what the peer sends is not TLS: is a tacit server, or client, there?",
        // The text may quote names of the peer's certificate, so it is made plain.
        _ => return plain(&error.to_string()),
    };
    plain(&format!("{advice} ({error})"))
}
