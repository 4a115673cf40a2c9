//! What is given on the command line of `tacit plan`, as it is written there.
use anyhow::bail;
use std::str::FromStr;
use tacit_lab::link::{LinkSpec, LinkSpecText, parse_duration};
use tacit_net::Rate;

const SECONDS_A_DAY: f64 = 86_400.0;
/// Where nothing limits the rate, bit/s.
const UNLIMITED: f64 = 1e11;

/// `20mbit/40ms`, `15mbit:30mbit/2ms`, or a preset.
#[derive(Clone)]
pub struct Link(pub tacit_plan::Link);

impl FromStr for Link {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rate = |text: &str| text.parse::<Rate>().map_err(|e| e.to_string());
        let spec = match text.split_once('/') {
            None => LinkSpecText { preset: Some(text.into()), ..LinkSpecText::default() },
            Some((rates, rtt)) => {
                let (up, down) = rates.split_once(':').unwrap_or((rates, rates));
                LinkSpecText {
                    up: Some(rate(up)?),
                    down: Some(rate(down)?),
                    rtt: Some(rtt.into()),
                    ..LinkSpecText::default()
                }
            }
        };
        let spec = LinkSpec::parse(&spec).map_err(|e| e.to_string())?;
        let bits = |rate: Option<Rate>| rate.map_or(UNLIMITED, |rate| rate.bits_per_second() as f64);
        Ok(Self(tacit_plan::Link {
            name: spec.name().to_owned(),
            up_bits: bits(spec.up()),
            down_bits: bits(spec.down()),
            rtt_s: spec.rtt().as_secs_f64(),
        }))
    }
}

/// `200/day`.
#[derive(Clone, Copy)]
pub struct Requests {
    pub per_day: f64,
}

impl FromStr for Requests {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "write for example 200/day, 10/hour, 0.5/s".to_owned();
        let (count, time) = text.split_once('/').ok_or_else(wrong)?;
        let seconds = match time {
            "day" => SECONDS_A_DAY,
            "hour" => 3600.0,
            "minute" | "min" => 60.0,
            "s" | "second" => 1.0,
            _ => return Err(wrong()),
        };
        let per_day = count.parse::<f64>().map_err(|_| wrong())? * SECONDS_A_DAY / seconds;
        if !(per_day > 0.0 && per_day <= 1e9) {
            return Err("must be more than none, and at most 10^9 a day".into());
        }
        Ok(Self { per_day })
    }
}

/// What a joule counts for, seconds.
pub fn weight(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.0..=1e6).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds from 0 to 10^6".into()),
    }
}

/// One of `--limit`.
#[derive(Clone, Copy)]
pub enum Limit {
    Memory(u64),
    Online(f64),
    Upload(u64),
    Bytes(u64),
    Agreement(f64),
    Dealer(bool),
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
            "trust" => match value {
                "two-party" => Ok(Self::Dealer(false)),
                "dealer" => Ok(Self::Dealer(true)),
                _ => Err("trust is two-party or dealer".into()),
            },
            _ => Err(format!("there is no limit {key:?}; there are memory, online, upload, bytes, agreement, trust")),
        }
    }
}

/// `400MB`, `1.5GiB`, `64kB`.
fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || "write for example 400MB, 64kB, 1.5GiB".to_owned();
    let split = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(wrong)?;
    let unit = match &text[split..] {
        "B" => 1.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "KiB" => 1024.0,
        "MiB" => 1048576.0,
        "GiB" => 1073741824.0,
        _ => return Err(wrong()),
    };
    let number: f64 = text[..split].parse().map_err(|_| wrong())?;
    if !(number >= 0.0 && number * unit < 1e18) {
        return Err(wrong());
    }
    Ok((number * unit) as u64)
}

/// One of `--prices`.
#[derive(Clone, Copy)]
pub enum Price {
    CoreHour(f64),
    Gigabyte(f64),
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
            _ => Err(format!("there is no price {key:?}; there are core-hour, gb")),
        }
    }
}

impl Price {
    /// Of a core for an hour and of a gigabyte, where both were given; none where neither was.
    pub fn both(given: &[Self]) -> anyhow::Result<Option<[f64; 2]>> {
        let core = given.iter().rev().find_map(|p| if let Self::CoreHour(price) = p { Some(*price) } else { None });
        let gigabyte = given.iter().rev().find_map(|p| if let Self::Gigabyte(price) = p { Some(*price) } else { None });
        match (core, gigabyte) {
            (Some(core), Some(gigabyte)) => Ok(Some([core, gigabyte])),
            (None, None) => Ok(None),
            _ => bail!("--prices needs both core-hour and gb"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read_as_they_are_written() {
        let link = "15mbit:30mbit/2ms".parse::<Link>().map(|l| l.0).unwrap();
        assert_eq!((link.up_bits, link.down_bits, link.rtt_s), (15e6, 30e6, 0.002));
        let lte = "lte".parse::<Link>().map(|l| l.0).unwrap();
        assert_eq!((lte.name.as_str(), lte.rtt_s), ("lte", 0.07));
        for wrong in ["", "fast", "20mbit/", "20mbit/40", "0mbit/1ms", "/40ms", "20mbit:/1ms"] {
            assert!(wrong.parse::<Link>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn limits_and_rates_have_units() {
        assert!(matches!("memory=1.5MiB".parse(), Ok(Limit::Memory(1_572_864))));
        assert!(matches!("trust=dealer".parse(), Ok(Limit::Dealer(true))));
        for wrong in [
            "memory=1",
            "memory=-1MB",
            "online=1",
            "speed=1s",
            "trust=all",
            "upload=nanMB",
            "bytes=1e30GB",
            "agreement=2",
        ] {
            assert!(wrong.parse::<Limit>().is_err(), "{wrong}");
        }
        assert_eq!("10/hour".parse::<Requests>().map(|r| r.per_day), Ok(240.0));
        for wrong in ["10", "x/day", "0/day", "-1/day", "nan/day", "1/year"] {
            assert!(wrong.parse::<Requests>().is_err(), "{wrong}");
        }
        assert!(Price::both(&["gb=1".parse().unwrap()]).is_err());
    }
}
