//! `tacit plan --serve`: a page with sliders, for browsers on this machine. The model is lowered
//! once; every move of a slider asks the same planner again.
use super::PlanRequest;
use crate::print;
use anyhow::{Context, bail, ensure};
use httparse::{EMPTY_HEADER, Request};
use serde_json::{Value, json};
use std::fmt::Display;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::str::{self, FromStr};
use std::thread;
use std::time::Duration;
use tacit_net::NetError;

const PAGE: &str = include_str!("page.html");
/// Largest request, in bytes, and most of its headers.
const MAX_REQUEST: usize = 16 << 10;
const MAX_HEADERS: usize = 64;
/// How long a browser may pause within a request or an answer.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Answers requests until the process ends.
pub fn serve(plan_request: &PlanRequest, address: SocketAddr, as_json: bool) -> anyhow::Result<()> {
    if !address.ip().is_loopback() {
        bail!(
            "{address} is no address of this machine alone: the page shows the model's costs, so give a loopback address"
        );
    }
    // Report a failing plan now instead of to the first browser.
    plan_request.clone().plan()?;
    let listener = TcpListener::bind(address).map_err(|e| NetError::cannot_listen(address, "--serve", &e))?;
    let address = listener.local_addr().context("the page's address")?;
    let value = json!({ "listening": format!("http://{address}") });
    print::row(as_json, &value, &format!("listening on http://{address}/ (Ctrl-C ends it)"))?;
    let hosts = names(address);
    thread::scope(|scope| {
        for stream in listener.incoming() {
            // A thread each: browsers open connections before they need them. One that fails, such as
            // one that the browser has closed, concerns no other.
            let answering = stream.and_then(|stream| {
                thread::Builder::new().spawn_scoped(scope, || respond(plan_request, &hosts, stream))
            });
            if answering.is_err() {
                // The process has too many files or threads.
                thread::sleep(Duration::from_millis(100));
            }
        }
    });
    Ok(())
}

/// Answers the one request of a connection.
///
/// # Errors
/// The browser left, or sends no request.
fn respond(plan_request: &PlanRequest, hosts: &[String], mut stream: TcpStream) -> anyhow::Result<()> {
    stream.set_read_timeout(Some(MAX_PAUSE))?;
    stream.set_write_timeout(Some(MAX_PAUSE))?;
    let mut bytes = vec![0; MAX_REQUEST];
    let mut filled = 0;
    loop {
        let read = stream.read(&mut bytes[filled..])?;
        ensure!(read > 0, "the request is cut short, or longer than {MAX_REQUEST} bytes");
        filled += read;
        let mut headers = [EMPTY_HEADER; MAX_HEADERS];
        let mut request = Request::new(&mut headers);
        if request.parse(&bytes[..filled])?.is_complete() {
            let reply = answer(plan_request, hosts, &RequestHead::from_request(&request))?;
            return Ok(stream.write_all(&reply.response())?);
        }
    }
}

/// Returns the host names that browsers use for the page: without a port if it is the default one.
fn names(address: SocketAddr) -> Vec<String> {
    let mut names = vec![address.to_string(), format!("localhost:{}", address.port())];
    if address.port() == 80 {
        names.extend(names.clone().iter().filter_map(|name| name.strip_suffix(":80")).map(str::to_owned));
    }
    names
}

struct RequestHead<'a> {
    get: bool,
    /// Path and query.
    target: &'a str,
    hosts: Vec<&'a str>,
    origins: Vec<&'a str>,
    /// Values of `Sec-Fetch-Site`: where the browser says that the request comes from.
    sites: Vec<&'a str>,
}

impl<'a> RequestHead<'a> {
    fn from_request(request: &Request<'_, 'a>) -> Self {
        let [hosts, origins, sites] = ["Host", "Origin", "Sec-Fetch-Site"].map(|name| values(request, name));
        let target = request.path.unwrap_or_default();
        Self { get: request.method == Some("GET"), target, hosts, origins, sites }
    }
}

/// Returns all values of a header; empty for one that is no text.
fn values<'a>(request: &Request<'_, 'a>, name: &str) -> Vec<&'a str> {
    let values = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
    values.map(|header| str::from_utf8(header.value).unwrap_or_default()).collect()
}

struct HttpResponse {
    code: u16,
    kind: &'static str,
    body: String,
    /// Content security policy, for the page itself.
    policy: Option<String>,
}

impl HttpResponse {
    fn json(code: u16, value: &Value) -> Self {
        Self { code, kind: "application/json", body: value.to_string(), policy: None }
    }

    fn error(code: u16, text: impl Display) -> Self {
        Self::json(code, &json!({ "error": text.to_string() }))
    }

    fn response(self) -> Vec<u8> {
        let Self { code, kind, body, policy } = self;
        let policy = policy.map_or(String::new(), |policy| format!("Content-Security-Policy: {policy}\r\n"));
        let length = body.len();
        format!(
            "HTTP/1.1 {code} \r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\n{policy}\r\n{body}"
        )
        .into_bytes()
    }
}

/// # Errors
/// The operating system gives no randomness.
fn answer(plan_request: &PlanRequest, hosts: &[String], head: &RequestHead<'_>) -> anyhow::Result<HttpResponse> {
    // DNS rebinding: a page under another name that resolves to this address would pass for this
    // page otherwise.
    if head.hosts.len() != 1 || !head.hosts.iter().all(|name| is_own(hosts, name)) {
        return Ok(HttpResponse::error(403, "the request is for another host than this page's address"));
    }
    let mut names = head.origins.iter().map(|origin| origin.strip_prefix("http://"));
    if !names.all(|name| name.is_some_and(|name| is_own(hosts, name))) {
        return Ok(HttpResponse::error(403, "the request comes from a web page that is not this one"));
    }
    if !head.get {
        return Ok(HttpResponse::error(405, "only GET is answered"));
    }
    let (path, query) = head.target.split_once('?').unwrap_or((head.target, ""));
    // Other pages may link to `/`; requests that cost work must come from this page.
    if path != "/" && !head.sites.iter().all(|site| ["same-origin", "none"].contains(site)) {
        return Ok(HttpResponse::error(403, "the request comes from a web page that is not this one"));
    }
    match path {
        "/" => page(),
        "/plan" => {
            Ok(match apply_query(plan_request.clone(), query).map_err(anyhow::Error::msg).and_then(PlanRequest::plan) {
                Ok(plan) => HttpResponse::json(200, &plan.json()),
                Err(error) => HttpResponse::error(400, error),
            })
        }
        _ => Ok(HttpResponse::error(404, "there are / and /plan")),
    }
}

fn is_own(hosts: &[String], name: &str) -> bool {
    hosts.iter().any(|host| host.eq_ignore_ascii_case(name))
}

fn page() -> anyhow::Result<HttpResponse> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).context("randomness of the operating system")?;
    let nonce = print::hex(&bytes);
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    );
    let body = crate::page::fill_template(PAGE).replace("{{nonce}}", &nonce);
    Ok(HttpResponse { code: 200, kind: "text/html; charset=utf-8", body, policy: Some(policy) })
}

/// Returns the plan request with the sliders' values:
/// `rate=20&rtt=40&weight=0.1&memory=400&trust=dealer&goal=latency`.
fn apply_query(mut plan_request: PlanRequest, query: &str) -> Result<PlanRequest, String> {
    let link = &mut plan_request.setting.link;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or("write KEY=VALUE")?;
        match key {
            "rate" => *link = link.with_rate(1e6 * parse_in_range(key, value, 1e-3, 1e5)?),
            "rtt" => *link = link.with_rtt(1e-3 * parse_in_range(key, value, 0.0, 1e5)?),
            "weight" => plan_request.usage.joule_s = parse_in_range(key, value, 0.0, 1e6)?,
            "memory" => plan_request.limits.memory = Some((1e6 * parse_in_range(key, value, 0.1, 1e7)?) as u64),
            "goal" => plan_request.goal = value.parse().map_err(|e: tacit_plan::PlanError| e.to_string())?,
            "trust" if value == "dealer" => plan_request.limits.dealer = true,
            "trust" if value == "two-party" => plan_request.limits.dealer = false,
            _ => return Err(format!("{key}={value} is not known; there are rate, rtt, weight, memory, trust, goal")),
        }
    }
    link.name = format!("{:.3} Mbit/s, {:.3} ms", link.up_bits_per_s.min(link.down_bits_per_s) / 1e6, 1e3 * link.rtt_s);
    Ok(plan_request)
}

fn parse_in_range(key: &str, text: &str, min: f64, max: f64) -> Result<f64, String> {
    match f64::from_str(text) {
        Ok(value) if (min..=max).contains(&value) => Ok(value),
        _ => Err(format!("{key} is a number from {min} to {max}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::LinkUse;
    use super::*;
    use tacit_graph::import::{ImportOptions, import};
    use tacit_plan::{Device, Goal, Limits, Link, Setting, Usage};

    fn sample_request() -> PlanRequest {
        let network = tacit_graph::zoo::build("tiny-mlp", 1).unwrap();
        let model = import(&network, &ImportOptions::default()).unwrap().model;
        let (offers, refused) = super::super::offers::list_offers(&model, &[]).unwrap();
        let link = Link {
            name: "a link".into(),
            up_bits_per_s: 10e6,
            down_bits_per_s: 20e6,
            rtt_s: 0.04,
            bucket: 0.0,
            tunnel_cpu_s_per_byte: 0.0,
        };
        let (client, server) = (Device::named("pi4b").unwrap(), Device::named("16core").unwrap());
        let setting = Setting { client, server, client_threads: 1, server_threads: 1, link };
        let (limits, usage) = (Limits::default(), Usage::default());
        PlanRequest {
            model: "tiny".into(),
            setting,
            offers,
            refused,
            goal: Goal::Latency,
            limits,
            usage,
            ways: LinkUse { pace: None, idle: None },
        }
    }

    const HOST: &str = "localhost:81";

    /// A request of the page itself.
    fn own_head(target: &str) -> RequestHead<'_> {
        RequestHead { get: true, target, hosts: vec![HOST], origins: Vec::new(), sites: Vec::new() }
    }

    fn code(plan_request: &PlanRequest, head: &RequestHead<'_>) -> u16 {
        answer(plan_request, &names("127.0.0.1:81".parse().unwrap()), head).unwrap().code
    }

    #[test]
    fn hosts_omit_the_usual_port() {
        let hosts = |address: &str| names(address.parse().unwrap());
        assert_eq!(hosts("127.0.0.1:81"), ["127.0.0.1:81", "localhost:81"]);
        assert_eq!(hosts("[::1]:80"), ["[::1]:80", "localhost:80", "[::1]", "localhost"]);
    }

    #[test]
    fn answers_only_its_own_page() {
        let plan_request = sample_request();
        let code = |head: RequestHead<'_>| code(&plan_request, &head);
        for (target, expected) in [("/", 200), ("/plan", 200), ("/else", 404)] {
            assert_eq!(code(own_head(target)), expected, "{target}");
        }
        assert_eq!(code(RequestHead { get: false, ..own_head("/") }), 405);
        for hosts in [&[][..], &["evil.example"], &["127.0.0.1"], &[HOST, "evil.example"], &[HOST, HOST]] {
            assert_eq!(code(RequestHead { hosts: hosts.to_vec(), ..own_head("/plan") }), 403, "{hosts:?}");
        }
        for (origin, expected) in [
            ("http://localhost:81", 200),
            ("http://evil.example", 403),
            ("null", 403),
            ("https://localhost:81", 403),
            ("http://localhost", 403),
        ] {
            assert_eq!(code(RequestHead { origins: vec![origin], ..own_head("/plan") }), expected, "{origin}");
        }
        for (target, site, expected) in [
            ("/plan", "same-origin", 200),
            ("/plan", "none", 200),
            ("/plan", "same-site", 403),
            ("/plan", "cross-site", 403),
            // A link to the page.
            ("/", "cross-site", 200),
        ] {
            assert_eq!(code(RequestHead { sites: vec![site], ..own_head(target) }), expected, "{target} {site}");
        }
    }

    #[test]
    fn sliders_ask_the_planner() {
        let plan_request = sample_request();
        let ask = |query: &str, expected: u16| {
            let target = format!("/plan?{query}");
            let response = answer(&plan_request, &[HOST.into()], &own_head(&target)).unwrap();
            assert_eq!(response.code, expected, "{query}: {}", response.body);
            serde_json::from_str::<Value>(&response.body).unwrap()
        };
        let fast = ask("rate=1000&rtt=1", 200);
        assert_eq!(fast["setting"]["link"]["up_bits"], 1e9);
        assert_eq!(fast["setting"]["link"]["down_bits"], 2e9);
        let score = |plan: &Value| plan["ranked"][0]["choice"]["score"].as_f64().unwrap();
        assert!(score(&fast) < score(&ask("rate=1000&rtt=100", 200)));
        assert!(score(&ask("weight=100", 200)) > score(&ask("weight=0", 200)));
        let small = ask("memory=0.1", 200);
        let objection = small["ranked"][0]["choice"]["objections"].to_string();
        assert!(objection.contains("the client needs"), "{objection}");
        let refused = "rate=0 rate=x rtt=-1 memory=1e99 weight=nan speed=1 rate trust=all goal=fun goal=money";
        for query in refused.split(' ') {
            ask(query, 400);
        }
    }

    #[test]
    fn refuses_addresses_of_other_machines() {
        let error = serve(&sample_request(), "0.0.0.0:0".parse().unwrap(), false).unwrap_err().to_string();
        assert!(error.contains("loopback"), "{error}");
    }
}
