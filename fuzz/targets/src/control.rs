//! What a server's control interface reads: bodies of a changed policy and of a notice, and what a
//! certificate says.

use tacit_serve::{MAX_BODY_BYTES, read_notice, read_policy};
use tacit_store::{Role, keys};

/// A body as it comes, no larger than bodies are read.
pub(crate) fn notice_body(data: &[u8]) {
    let body = &data[..data.len().min(MAX_BODY_BYTES)];
    match read_notice(body) {
        Ok(notice) => {
            assert!(notice.model.len() <= 256 && notice.backend.len() <= 256 && notice.device.threads > 0);
            assert!([notice.expected_ms, notice.ttl_ms].into_iter().flatten().all(|ms| ms <= 604_800_000));
        }
        Err(why) => assert!(!why.is_empty() && why.len() < 1000, "a refusal says why, in short: {} bytes", why.len()),
    }
}

pub(crate) fn notice_seeds() -> Vec<Vec<u8>> {
    [
        r#"{"model": "digits", "backend": "cheetah"}"#,
        r#"{"model": "m", "backend": "b", "inputs": 8, "threads": 4, "link": "broadband", "memory_mib": 512, "expected_s": 1.5, "ttl_s": 600}"#,
        r#"{"backend": "\u0062", "model": "m", "ttl_s": null}"#,
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}

/// A body as it comes, no larger than bodies are read.
pub(crate) fn policy_body(data: &[u8]) {
    let body = &data[..data.len().min(MAX_BODY_BYTES)];
    if let Err(why) = read_policy(body) {
        assert!(!why.is_empty() && why.len() < 1000, "a refusal says why, in short: {} bytes", why.len());
    }
}

pub(crate) fn policy_seeds() -> Vec<Vec<u8>> {
    let names = ["fcfs", "priority:0.5", "sequential", "srt+fair", "adaptive+fair:2"];
    let mut seeds: Vec<Vec<u8>> = names.iter().map(|name| format!(r#"{{"policy": "{name}"}}"#).into()).collect();
    seeds.push(br#"{"policy": "\u0066cfs"}"#.to_vec());
    seeds
}

/// A certificate (DER); TLS has judged real ones before.
pub(crate) fn certificate_role(data: &[u8]) {
    if Role::from_certificate(data) == Role::Operator {
        let name = b"tacit-operator";
        assert!(data.windows(name.len()).any(|window| window == name), "an operator is called so");
    }
    // Whose, and until when: a second at the end of a year that has four digits at most.
    let known = keys::fingerprint(data);
    if let Some(validity) = keys::Validity::from_certificate(data) {
        assert!(
            known.is_some() && validity.until < 253_402_300_800 && validity.until_utc().len() == 20,
            "{validity:?}"
        );
    }
}

pub(crate) fn certificate_seeds() -> Vec<Vec<u8>> {
    [&include_bytes!("../seeds/client.der")[..], include_bytes!("../seeds/operator.der")].map(Vec::from).into()
}
