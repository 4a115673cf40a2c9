#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| tacit_fuzz_targets::run("helper_request", data));
