//! Tests of the crate in one program, which is linked once.
mod cluster;
mod recorded;
mod simulate;

use serde_json::json;
use tacit_sim::{Mix, ProfileFile};

/// The profile of a small model, and of a large one whose phases take these seconds.
fn profile(large_pre_s: f64, large_on_s: f64) -> ProfileFile {
    let models = json!({
        "small": {"pre": {"wall_s": 1.0, "peak_rss_bytes": 1000}, "on": {"wall_s": 0.5, "load_s": 0.5, "peak_rss_bytes": 2000},
                  "key_bytes_server": 10, "key_bytes_client": 10},
        "large": {"pre": {"wall_s": large_pre_s, "peak_rss_bytes": 50000}, "on": {"wall_s": large_on_s, "peak_rss_bytes": 90000},
                  "key_bytes_server": 1000, "key_bytes_client": 1000},
    });
    ProfileFile::parse(&json!({"backend": "test", "link": "loopback", "models": models}).to_string()).unwrap()
}

fn mix(small: u32, large: u32) -> Mix {
    Mix { name: "test".into(), counts: vec![("small".into(), small), ("large".into(), large)] }
}
