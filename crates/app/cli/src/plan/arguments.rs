//! Parses the values on the command line of `tacit plan`.
use anyhow::bail;
use std::str::FromStr;
use tacit_net::Rate;
use tacit_net::link::{LinkSpec, LinkSpecText, parse_duration};
use tacit_plan::Prices;

const SECONDS_A_DAY: f64 = 86_400.0;
/// Rate of a link without a limit, bit/s.
const UNLIMITED: f64 = 1e11;

/// A link: `20mbit/40ms`, `15mbit:30mbit/2ms`, with a third part the bytes of a token bucket
/// (`4mbit/1ms/3000`), or a preset.
#[derive(Clone)]
pub struct Link(pub tacit_plan::Link);

impl FromStr for Link {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.splitn(3, '/').collect();
        let spec = match parts.get(1) {
            None => LinkSpecText { preset: Some(text.into()), ..LinkSpecText::default() },
            Some(rtt) => {
                let (up, down) = parts[0].split_once(':').unwrap_or((parts[0], parts[0]));
                LinkSpecText {
                    up: Some(rate(up)?),
                    down: Some(rate(down)?),
                    rtt: Some((*rtt).into()),
                    ..LinkSpecText::default()
                }
            }
        };
        let spec = LinkSpec::parse(&spec).map_err(|e| e.to_string())?;
        let bucket = match parts.get(2) {
            None => 0,
            Some(bytes) => bytes.parse::<u32>().map_err(|_| format!("`{bytes}` is no number of bytes"))?,
        };
        Ok(Self(tacit_plan::Link {
            name: spec.name().to_owned(),
            up_bits_per_s: bits(spec.up()),
            down_bits_per_s: bits(spec.down()),
            rtt_s: spec.rtt().as_secs_f64(),
            bucket: f64::from(bucket),
            tunnel_cpu_s_per_byte: 0.0,
        }))
    }
}

fn rate(text: &str) -> Result<Rate, String> {
    text.parse::<Rate>().map_err(|e| e.to_string())
}

fn bits(rate: Option<Rate>) -> f64 {
    rate.map_or(UNLIMITED, |rate| rate.bits_per_second() as f64)
}

/// A number of requests in a time: `200/day`.
#[derive(Clone, Copy)]
pub struct Requests {
    pub per_day: f64,
}

impl FromStr for Requests {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const WRONG: &str = "write for example 200/day, 10/hour, 0.5/s";
        let (count, time) = text.split_once('/').ok_or(WRONG)?;
        let seconds = match time {
            "day" => SECONDS_A_DAY,
            "hour" => 3600.0,
            "minute" | "min" => 60.0,
            "s" | "second" => 1.0,
            _ => return Err(WRONG.into()),
        };
        let per_day = count.parse::<f64>().map_err(|_| WRONG)? * SECONDS_A_DAY / seconds;
        if !(per_day > 0.0 && per_day <= 1e9) {
            return Err("must be more than none, and at most 10^9 a day".into());
        }
        Ok(Self { per_day })
    }
}

/// Hours of the day: `22-6`.
#[derive(Clone, Copy, serde::Serialize)]
pub struct IdleHours {
    pub from: u32,
    pub to: u32,
}

impl IdleHours {
    pub fn seconds(self) -> f64 {
        3600.0 * f64::from((self.to + 24 - self.from - 1) % 24 + 1)
    }
}

impl FromStr for IdleHours {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let hours = text.split_once('-').and_then(|(start, end)| Some((start.parse().ok()?, end.parse().ok()?)));
        match hours {
            Some((start, end)) if start < 24 && end <= 24 => Ok(Self { from: start, to: end }),
            _ => Err("two hours of the day, for example 22-6".into()),
        }
    }
}

/// What carries the connection, which is TLS in either case.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Tunnel {
    /// TLS alone
    None,
    /// A WireGuard tunnel in user space, below TLS
    Wireguard,
}

/// Parses the seconds that a joule is worth.
pub fn weight(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.0..=1e6).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds from 0 to 10^6".into()),
    }
}

/// A value of `--limit`.
#[derive(Clone, Copy)]
pub enum Limit {
    Memory(u64),
    Online(f64),
    Upload(u64),
    Bytes(u64),
    Agreement(f64),
    Dealer(bool),
    Rate(Rate),
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
        match key {
            "memory" => bytes(value).map(Self::Memory),
            "upload" => bytes(value).map(Self::Upload),
            "bytes" => bytes(value).map(Self::Bytes),
            "online" => parse_duration(value).map(|time| Self::Online(time.as_secs_f64())),
            "agreement" => match value.parse() {
                Ok(share) if (0.0..=1.0).contains(&share) => Ok(Self::Agreement(share)),
                _ => Err("an agreement is a share from 0 to 1".into()),
            },
            "rate" => value.parse().map(Self::Rate).map_err(|e: tacit_net::BadRate| e.to_string()),
            "trust" => match value {
                "two-party" => Ok(Self::Dealer(false)),
                "dealer" => Ok(Self::Dealer(true)),
                _ => Err("trust is two-party or dealer".into()),
            },
            _ => Err(format!(
                "there is no limit {key:?}; there are memory, online, upload, bytes, agreement, rate, trust"
            )),
        }
    }
}

/// Parses a number of bytes: `400MB`, `1.5GiB`, `64kB`.
fn bytes(text: &str) -> Result<u64, String> {
    const WRONG: &str = "write for example 400MB, 64kB, 1.5GiB";
    let split = text.find(|c: char| c.is_ascii_alphabetic()).ok_or(WRONG)?;
    let unit = match &text[split..] {
        "B" => 1.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "KiB" => 1024.0,
        "MiB" => 1048576.0,
        "GiB" => 1073741824.0,
        _ => return Err(WRONG.into()),
    };
    let number: f64 = text[..split].parse().map_err(|_| WRONG)?;
    if !(number >= 0.0 && number * unit < 1e18) {
        return Err(WRONG.into());
    }
    Ok((number * unit) as u64)
}

/// A value of `--prices`.
#[derive(Clone, Copy)]
pub enum Price {
    CoreHour(f64),
    Gigabyte(f64),
    IdleGigabyte(f64),
}

impl FromStr for Price {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
        let price: f64 = value.parse().map_err(|_| format!("{value:?} is no number"))?;
        if !(price >= 0.0 && price.is_finite()) {
            return Err("a price is 0 or more".into());
        }
        match key {
            "core-hour" => Ok(Self::CoreHour(price)),
            "gb" => Ok(Self::Gigabyte(price)),
            "idle-gb" => Ok(Self::IdleGigabyte(price)),
            _ => Err(format!("there is no price {key:?}; there are core-hour, gb, idle-gb")),
        }
    }
}

impl Price {
    /// Combines the prices; none if none was given. Fails unless core and gigabyte are both given.
    pub fn all(prices: &[Self]) -> anyhow::Result<Option<Prices>> {
        let (mut core, mut gigabyte, mut idle_gigabyte) = (None, None, None);
        for price in prices {
            match *price {
                Self::CoreHour(price) => core = Some(price),
                Self::Gigabyte(price) => gigabyte = Some(price),
                Self::IdleGigabyte(price) => idle_gigabyte = Some(price),
            }
        }
        match (core, gigabyte) {
            (Some(core_hour), Some(gigabyte)) => Ok(Some(Prices { core_hour, gigabyte, idle_gigabyte })),
            (None, None) if idle_gigabyte.is_none() => Ok(None),
            _ => bail!("--prices needs both core-hour and gb"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_links() {
        let link = "15mbit:30mbit/2ms".parse::<Link>().map(|l| l.0).unwrap();
        assert_eq!((link.up_bits_per_s, link.down_bits_per_s, link.rtt_s), (15e6, 30e6, 0.002));
        let lte = "lte".parse::<Link>().map(|l| l.0).unwrap();
        assert_eq!((lte.name.as_str(), lte.rtt_s), ("lte", 0.07));
        for text in ["", "fast", "20mbit/", "20mbit/40", "0mbit/1ms", "/40ms", "20mbit:/1ms"] {
            assert!(text.parse::<Link>().is_err(), "{text}");
        }
    }

    #[test]
    fn parses_limits_rates_and_hours() {
        assert!(matches!("memory=1.5MiB".parse(), Ok(Limit::Memory(1_572_864))));
        assert!(matches!("trust=dealer".parse(), Ok(Limit::Dealer(true))));
        let refused = "memory=1 memory=-1MB online=1 speed=1s trust=all upload=nanMB bytes=1e30GB agreement=2";
        for text in refused.split(' ') {
            assert!(text.parse::<Limit>().is_err(), "{text}");
        }
        assert_eq!("10/hour".parse::<Requests>().map(|r| r.per_day), Ok(240.0));
        for text in ["10", "x/day", "0/day", "-1/day", "nan/day", "1/year"] {
            assert!(text.parse::<Requests>().is_err(), "{text}");
        }
        assert!(Price::all(&["gb=1".parse().unwrap()]).is_err());
        assert!(Price::all(&["idle-gb=1".parse().unwrap()]).is_err());
        assert!(matches!("rate=10mbit".parse(), Ok(Limit::Rate(rate)) if rate.bits_per_second() == 10_000_000));
        let hours = |text: &str| text.parse::<IdleHours>().map(|hours| hours.seconds() / 3600.0);
        assert_eq!((hours("22-6"), hours("0-24"), hours("9-10"), hours("7-7")), (Ok(8.0), Ok(24.0), Ok(1.0), Ok(24.0)));
        for text in ["", "22", "24-1", "1-25", "a-b", "-1-3"] {
            assert!(hours(text).is_err(), "{text}");
        }
    }
}
