//! Authorization: holders of the token, or users who can open the socket's file. No web page but
//! the sidecar's own may send requests.
use crate::ApiError;
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, Uri};
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use zeroize::Zeroizing;

/// Bytes of a new token, before encoding as text.
const TOKEN_BYTES: usize = 32;
/// Shortest and longest token in a file, in bytes.
const MIN_TOKEN_LEN: usize = 16;
const MAX_TOKEN_LEN: usize = 1024;

/// The token that requests must show. Only its hash is stored, and compared in constant time.
#[derive(Clone)]
pub struct Token(blake3::Hash);

impl Token {
    /// The token of this text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(blake3::hash(text.as_bytes()))
    }

    /// Reads the token from a file that is private to its user (mode 0600).
    ///
    /// # Errors
    /// The file cannot be read, is open to other users, or holds no token.
    pub fn read(path: &Path) -> io::Result<Self> {
        let file = tacit_foreign::file::open(path)?;
        let meta = file.metadata()?;
        if meta.mode() & 0o077 != 0 {
            return Err(io::Error::other(format!(
                "it is open to others (mode {:04o}): make a new one (--new-token)",
                meta.mode() & 0o777
            )));
        }
        let mut text = Zeroizing::new(String::new());
        file.take(MAX_TOKEN_LEN as u64 + 2).read_to_string(&mut text)?;
        let token = text.trim_end_matches(['\r', '\n']);
        if !(MIN_TOKEN_LEN..=MAX_TOKEN_LEN).contains(&token.len()) || !token.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(io::Error::other(format!(
                "it does not hold one line of {MIN_TOKEN_LEN} to {MAX_TOKEN_LEN} letters and digits"
            )));
        }
        Ok(Self::new(token))
    }

    /// Writes a new token to a new file.
    ///
    /// # Errors
    /// The file exists or cannot be written, or the operating system gives no randomness.
    pub fn make(path: &Path) -> io::Result<()> {
        let mut bytes = Zeroizing::new([0; TOKEN_BYTES]);
        getrandom::fill(&mut *bytes).map_err(|e| io::Error::other(e.to_string()))?;
        let text = Zeroizing::new(bytes.iter().map(|b| format!("{b:02x}")).collect::<String>());
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()
    }

    fn is_in(&self, headers: &HeaderMap) -> bool {
        let credentials = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        // Names of schemes are case-insensitive.
        let credentials =
            credentials.and_then(|value| value.split_once(' ')).filter(|(s, _)| s.eq_ignore_ascii_case("bearer"));
        credentials.is_some_and(|(_, token)| blake3::hash(token.trim().as_bytes()) == self.0)
    }
}

/// The rules of one listener.
#[derive(Clone)]
pub struct Access {
    /// `None` if opening the listener suffices: a socket whose file is private to its user.
    token: Option<Token>,
    /// The `host:port` values that requests may name; `None` for a socket file.
    hosts: Option<Vec<String>>,
}

impl Access {
    /// Rules of a TCP address: requests need its token, and must name the address or `localhost`.
    #[must_use]
    pub fn tcp(address: SocketAddr, token: Token) -> Self {
        let port = address.port();
        let mut hosts = vec![address.to_string(), format!("localhost:{port}")];
        if port == 80 {
            hosts.extend([address.ip().to_string(), format!("[{}]", address.ip()), "localhost".into()]);
        }
        Self { token: Some(token), hosts: Some(hosts) }
    }

    /// Rules of a socket that only its user can open.
    #[must_use]
    pub fn unix() -> Self {
        Self { token: None, hosts: None }
    }

    /// Whether a request shows the token, if there is one.
    pub(crate) fn shows_token(&self, headers: &HeaderMap) -> bool {
        self.token.as_ref().is_none_or(|token| token.is_in(headers))
    }

    /// Checks a request.
    ///
    /// # Errors
    /// The request names another host, comes from a foreign page, or lacks the token.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
        // With two headers, this check might read one and a later reader the other.
        if is_repeated(headers, HOST) || is_repeated(headers, ORIGIN) {
            return Err(ApiError::Forbidden("the request names its host or its origin more than once"));
        }
        // Otherwise a foreign page whose name a resolver points to this address would pass as the
        // sidecar's own.
        if let Some(hosts) = &self.hosts {
            let header = headers.get(HOST).map(|value| value.to_str().unwrap_or(""));
            let named = [uri.authority().map(|a| a.as_str()), header];
            let mut names = named.into_iter().flatten();
            let is_own = names.all(|name| hosts.iter().any(|host| host.eq_ignore_ascii_case(name)));
            if named.iter().all(Option::is_none) || !is_own {
                return Err(ApiError::Forbidden("the request is for another host than this sidecar's address"));
            }
        }
        if let Some(origin) = headers.get(ORIGIN) {
            let origin = origin.to_str().ok().and_then(|o| o.strip_prefix("http://"));
            if !origin.is_some_and(|o| self.hosts.iter().flatten().any(|host| host == o)) {
                return Err(ApiError::Forbidden("the request comes from a web page that is not the sidecar's own"));
            }
        }
        // The page itself holds no data; its requests need the token.
        let open = matches!(uri.path(), "/" | "/v2/health/live");
        match &self.token {
            Some(token) if !open && !token.is_in(headers) => Err(ApiError::NoToken),
            _ => Ok(()),
        }
    }
}

fn is_repeated(headers: &HeaderMap, name: HeaderName) -> bool {
    headers.get_all(name).iter().nth(1).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn rejects_repeated_host_and_origin() {
        let tcp = Access::tcp("127.0.0.1:8000".parse().unwrap(), Token::new("0123456789abcdef"));
        let (host, origin) = ((HOST, "localhost:8000"), (ORIGIN, "http://localhost:8000"));
        let token = (AUTHORIZATION, "Bearer 0123456789abcdef");
        let accepted = [token.clone(), host.clone(), origin.clone()];
        assert_eq!(tcp.check(&"/v2".parse().unwrap(), &headers(&accepted)), Ok(()));
        for repeated in
            [host.clone(), (HOST, "evil.example"), origin, (ORIGIN, "http://evil.example"), (ORIGIN, "null")]
        {
            for access in [&tcp, &Access::unix()] {
                let list = [token.clone(), host.clone(), (ORIGIN, "http://localhost:8000"), repeated.clone()];
                let answer = access.check(&"/v2".parse().unwrap(), &headers(&list));
                assert!(matches!(answer, Err(ApiError::Forbidden(_))), "{repeated:?}");
            }
        }
    }

    #[test]
    fn checks_hosts_origins_and_tokens() {
        let access = Access::tcp("127.0.0.1:8000".parse().unwrap(), Token::new("0123456789abcdef"));
        let ask = |path: &str, list: &[(HeaderName, &str)]| access.check(&path.parse().unwrap(), &headers(list));
        let (host, token) = ((HOST, "localhost:8000"), (AUTHORIZATION, "bearer 0123456789abcdef"));
        assert_eq!(ask("/v2", &[host.clone(), token.clone()]), Ok(()));
        assert_eq!(ask("http://127.0.0.1:8000/v2", std::slice::from_ref(&token)), Ok(()));
        for path in ["/", "/v2/health/live"] {
            assert_eq!(ask(path, std::slice::from_ref(&host)), Ok(()));
        }
        for wrong in ["Bearer 0123456789abcdeF", "Bearer", "0123456789abcdef", "Basic 0123456789abcdef", "Bearer "] {
            assert_eq!(ask("/v2", &[host.clone(), (AUTHORIZATION, wrong)]), Err(ApiError::NoToken), "{wrong}");
        }
        assert_eq!(ask("/v2", std::slice::from_ref(&host)), Err(ApiError::NoToken));
        for name in ["evil.example:8000", "127.0.0.1", "127.0.0.1:80", "localhost", "", "127.0.0.1:8000.evil.example"] {
            let answer = ask("/", &[(HOST, name), token.clone()]);
            assert!(matches!(answer, Err(ApiError::Forbidden(_))), "{name}");
        }
        assert!(matches!(ask("/v2", std::slice::from_ref(&token)), Err(ApiError::Forbidden(_))), "no host");
        let result = ask("http://evil.example/v2", &[host.clone(), token.clone()]);
        assert!(matches!(result, Err(ApiError::Forbidden(_))), "two hosts");
        for (origin, good) in [
            ("http://127.0.0.1:8000", true),
            ("http://localhost:8000", true),
            ("null", false),
            ("http://localhost", false),
        ] {
            let answer = ask("/v2", &[host.clone(), token.clone(), (ORIGIN, origin)]);
            assert_eq!(answer.is_ok(), good, "{origin}");
        }
    }

    #[test]
    fn unix_socket_needs_no_token_but_refuses_pages() {
        let access = Access::unix();
        let uri = "/v2".parse().unwrap();
        assert_eq!(access.check(&uri, &headers(&[(HOST, "whatever")])), Ok(()));
        assert!(access.check(&uri, &headers(&[(ORIGIN, "http://localhost")])).is_err());
    }
}
