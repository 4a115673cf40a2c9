use super::*;
use proptest::prelude::*;

#[test]
fn lines_are_parsed_and_printed() {
    let end = MarkLine::parse(b"end online 123 sent_bytes=1.5e6 rounds=7\n").unwrap();
    let figures = BTreeMap::from([("rounds".to_owned(), 7.0), ("sent_bytes".to_owned(), 1.5e6)]);
    assert_eq!(end, MarkLine::Mark { edge: Edge::End, phase: "online".into(), t_ns: Some(123), figures });
    for text in [
        "party client",
        "begin setup",
        "end setup k=-1",
        "begin x 5",
        "note two words",
        "ping 9",
        "end x k=1e300",
        "end x k=0.25",
    ] {
        assert_eq!(MarkLine::parse(text.as_bytes()).unwrap().to_string(), format!("{text}\n"));
    }
}

#[test]
fn bad_lines_are_refused() {
    let long_name = format!("begin {}", "a".repeat(MAX_NAME + 1));
    let fields: String = (0..=MAX_FIGURES).map(|i| format!(" k{i}=1")).collect();
    let fields = format!("end x{fields}");
    let long = format!("note {}", "a".repeat(MAX_LINE));
    let bad = [
        "",
        "begin",
        "end",
        "party",
        "party two words",
        "begin a/b",
        "begin x y",
        "begin x -1",
        "begin x 1 2",
        "end x k=",
        "end x k=inf",
        "end x k=nan",
        "end x =1",
        "ping",
        "ping x",
        "hello",
        "begin \u{e9}",
        "begin x 99999999999999999999",
        &long_name,
        &fields,
        &long,
    ];
    for text in bad {
        assert!(MarkLine::parse(text.as_bytes()).is_err(), "{text:?}");
    }
    assert!(MarkLine::parse(b"begin \xff").is_err());
}

proptest! {
    #[test]
    fn parsed_lines_print_to_themselves_and_no_bytes_panic(
        start in prop::sample::select(vec!["", "note ", "begin ", "end a ", "party ", "end a 1 k="]),
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b" 0123456789abc=.e-".to_vec())], 0..200),
    ) {
        let bytes: Vec<u8> = start.bytes().chain(bytes).collect();
        if let Ok(line) = MarkLine::parse(&bytes) {
            prop_assert_eq!(MarkLine::parse(line.to_string().as_bytes()).unwrap(), line);
        }
    }
}
