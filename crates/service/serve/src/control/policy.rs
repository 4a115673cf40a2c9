//! The body of `PUT /v1/policy`.
use serde::Deserialize;
use tacit_sched::policy::PolicySpec;

const MAX_NAME: usize = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body<'a> {
    #[serde(borrow)]
    policy: std::borrow::Cow<'a, str>,
}

/// Reads the policy from a body of `PUT /v1/policy`: `{"policy": "adaptive"}`.
///
/// # Errors
/// A readable description of the fault in the body.
pub fn read_policy(body: &[u8]) -> Result<PolicySpec, String> {
    let Body { policy } =
        serde_json::from_slice(body).map_err(|e| format!("the body is not {{\"policy\": \"NAME\"}}: {e}"))?;
    if policy.len() > MAX_NAME {
        return Err(format!("the name of a policy has at most {MAX_NAME} bytes, not {}", policy.len()));
    }
    policy.parse().map_err(|e: tacit_sched::SchedError| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_policy_and_rejects_other_bodies() {
        assert_eq!(read_policy(br#"{"policy": "srt"}"#).unwrap(), PolicySpec::ShortestRemaining);
        assert!(read_policy(br#"{"policy": "\u0073rt+fair:2"}"#).is_ok());
        for body in
            ["", "srt", "\"srt\"", "{}", r#"{"policy": 1}"#, r#"{"policy": "srt", "x": 1}"#, r#"{"policy": "lifo"}"#]
        {
            assert!(read_policy(body.as_bytes()).is_err(), "{body}");
        }
        let long = format!(r#"{{"policy": "fcfs{}"}}"#, "+fair".repeat(10_000));
        assert!(read_policy(long.as_bytes()).unwrap_err().contains("at most 64 bytes"));
        assert!(read_policy(&[b'['; 60_000]).is_err());
    }
}
