//! Fuzz targets: for every parser of foreign bytes a function that must return, whatever it is given, without
//! a panic, a hang or an allocation that the bytes merely claim to need. `fuzz/` drives them with libFuzzer,
//! `tests/smoke.rs` with mutated valid inputs on stable Rust.
#![forbid(unsafe_code)]

mod ckks;
mod ckks_keys;
mod control;
mod import;
mod lab;
mod linear;
mod lowered;
mod material;
mod meter;
mod mutate;
mod net;
mod record;
mod sealed;
mod sidecar;
mod slots;
mod tacit_file;

pub use mutate::Mutator;

/// One parser under test.
pub struct Target {
    /// Name, as in `fuzz/fuzz_targets/NAME.rs`.
    pub name: &'static str,
    /// Feeds the parser; panics only if the parser is wrong.
    pub run: fn(&[u8]),
    /// Valid inputs, to be mutated.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "frames", run: net::frames, seeds: net::frame_seeds },
    Target { name: "messages", run: net::messages, seeds: net::message_seeds },
    Target { name: "handshake", run: net::handshake, seeds: net::handshake_seeds },
    Target { name: "recording", run: net::recording, seeds: net::recording_seeds },
    Target { name: "model_file", run: tacit_file::model_file, seeds: tacit_file::model_file_seeds },
    Target { name: "model_sections", run: tacit_file::sections, seeds: tacit_file::section_seeds },
    Target { name: "public_model", run: lowered::public_model, seeds: lowered::public_model_seeds },
    Target { name: "private_model", run: lowered::private_model, seeds: lowered::private_model_seeds },
    Target { name: "lowered_parts", run: lowered::parts, seeds: lowered::parts_seeds },
    Target { name: "dealer_model", run: lowered::registered, seeds: lowered::registered_seeds },
    Target { name: "dealer_request", run: lowered::dealer_request, seeds: lowered::dealer_request_seeds },
    Target { name: "helper_request", run: lowered::helper_request, seeds: lowered::helper_request_seeds },
    Target { name: "lowered_file", run: lowered::file, seeds: lowered::file_seeds },
    Target { name: "onnx", run: import::onnx, seeds: import::onnx_seeds },
    Target { name: "npy", run: import::npy, seeds: import::npy_seeds },
    Target { name: "npz", run: import::npz, seeds: import::npz_seeds },
    Target { name: "jpeg", run: import::jpeg, seeds: import::jpeg_seeds },
    Target { name: "client_material", run: material::client, seeds: material::client_seeds },
    Target { name: "server_material", run: material::server, seeds: material::server_seeds },
    Target { name: "sealed_file", run: sealed::file, seeds: sealed::seeds },
    Target { name: "public_key", run: linear::public_key, seeds: linear::public_key_seeds },
    Target { name: "ciphertext", run: linear::ciphertext, seeds: linear::ciphertext_seeds },
    Target { name: "ckks_ciphertext", run: ckks::ciphertext, seeds: ckks::ciphertext_seeds },
    Target { name: "ckks_key", run: ckks_keys::key, seeds: ckks_keys::key_seeds },
    Target { name: "ckks_key_file", run: ckks_keys::file, seeds: ckks_keys::file_seeds },
    Target { name: "linear_answer", run: linear::answer, seeds: linear::answer_seeds },
    Target { name: "slots_public_key", run: slots::public_key, seeds: slots::public_key_seeds },
    Target { name: "slots_rotation_key", run: slots::rotation_key, seeds: slots::rotation_key_seeds },
    Target { name: "slots_ciphertext", run: slots::ciphertext, seeds: slots::ciphertext_seeds },
    Target { name: "slots_answer", run: slots::answer, seeds: slots::answer_seeds },
    Target { name: "tegrastats", run: meter::tegrastats_log, seeds: meter::tegrastats_seeds },
    Target { name: "sensor_files", run: meter::sensor_files, seeds: meter::sensor_seeds },
    Target { name: "mlperf_trace", run: meter::mlperf_trace, seeds: meter::mlperf_seeds },
    Target { name: "meter_csv", run: meter::meter_csv, seeds: meter::csv_seeds },
    Target { name: "meter_answer", run: meter::meter_answer, seeds: meter::answer_seeds },
    Target { name: "device_profile", run: meter::device_profile, seeds: meter::profile_seeds },
    Target { name: "record_line", run: record::record_line, seeds: record::record_line_seeds },
    Target { name: "mark_line", run: record::mark_line, seeds: record::mark_line_seeds },
    Target { name: "notice_body", run: control::notice_body, seeds: control::notice_seeds },
    Target { name: "policy_body", run: control::policy_body, seeds: control::policy_seeds },
    Target { name: "certificate_role", run: control::certificate_role, seeds: control::certificate_seeds },
    Target { name: "oip_request", run: sidecar::request, seeds: sidecar::request_seeds },
    Target { name: "grpc_message", run: sidecar::message, seeds: sidecar::message_seeds },
    Target { name: "experiment", run: lab::experiment, seeds: lab::experiment_seeds },
];

/// Runs the target of that name.
///
/// # Panics
/// If there is no such target, or the parser is wrong.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|t| t.name == name).expect("a target of that name");
    (target.run)(data);
}
