//! The module that the Python tests load is built along with this test.
use std::path::Path;

#[test]
fn built_module_has_the_entry_that_python_looks_for() {
    let program = std::env::current_exe().unwrap();
    let module = program.parent().map(|deps| deps.join("lib_tacit.so")).unwrap();
    assert!(Path::new(&module).exists(), "{}", module.display());
    let bytes = std::fs::read(&module).unwrap();
    let entry = b"PyInit__tacit";
    assert!(bytes.windows(entry.len()).any(|w| w == entry), "{}", module.display());
}
