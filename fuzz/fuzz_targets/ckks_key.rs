#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| tacit_fuzz_targets::run("ckks_key", data));
