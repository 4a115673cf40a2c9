use super::*;

fn read_text(text: &str) -> Result<Request, ApiError> {
    read(text.as_bytes(), None)
}

const GOOD: &str = r#"{"id":"7","parameters":{"timeout":1500000,"priority":2},"inputs":[{"name":"input","shape":[1,2],
    "datatype":"FP32","data":[[1.5,-2]]}],"outputs":[{"name":"output","parameters":{"classification":3}}]}"#;

#[test]
fn reads_request() {
    let request = read_text(GOOD).unwrap();
    assert_eq!((request.id.as_str(), request.priority, request.binary), ("7", 2, false));
    assert_eq!(request.timeout, Some(Duration::from_millis(1500)));
    assert_eq!(request.inputs[0].shape, [1, 2]);
    assert_eq!(request.inputs[0].values, Values::F32(vec![1.5, -2.0]));
    assert_eq!(request.outputs, [Wanted { name: "output".into(), binary: None, classes: 3 }]);
}

#[test]
fn reads_binary_tensors_in_order() {
    let input_json = |name: &str, size: usize| {
        format!(r#"{{"name":"{name}","shape":[1],"datatype":"FP32","parameters":{{"binary_data_size":{size}}}}}"#)
    };
    let text = format!(
        r#"{{"parameters":{{"binary_data_output":true}},"inputs":[{},{}]}}"#,
        input_json("a", 4),
        input_json("b", 8)
    );
    let raw: Vec<u8> = [1.0f32, 2.0, 3.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    let bytes = [text.as_bytes(), &raw].concat();
    let request = read(&bytes, Some(text.len())).unwrap();
    assert!(request.binary);
    assert_eq!(request.inputs[0].values, Values::F32(vec![1.0]));
    assert_eq!(request.inputs[1].values, Values::F32(vec![2.0, 3.0]));
    assert!(read(&bytes[..bytes.len() - 1], Some(text.len())).is_err(), "too short");
    assert!(read(&[&bytes[..], &[0]].concat(), Some(text.len())).is_err(), "too long");
    assert!(read(&bytes, Some(bytes.len() + 1)).is_err());
    assert!(read(&bytes, Some(3)).is_err());
}

#[test]
fn rejects_deep_and_malformed_json() {
    let data = |text: &str| format!(r#"{{"inputs":[{{"name":"input","shape":[1],"datatype":"FP32","data":{text}}}]}}"#);
    let deep = |n: usize| format!("{}1{}", "[".repeat(n), "]".repeat(n));
    assert!(read_text(&data(&deep(MAX_AXES))).is_ok());
    let parameter = |text: &str| GOOD.replace(r#""priority":2"#, text);
    let cases = [
        String::new(),
        "{".into(),
        "[]".into(),
        "{}".into(),
        "\u{0}".into(),
        deep(100_000),
        data(&deep(MAX_AXES + 1)),
        data(&deep(100_000)),
        data("1"),
        data(r#"["1"]"#),
        data("[true]"),
        data("[null]"),
        data("[NaN]"),
        data("[1e999]"),
        data("[1e39]"),
        data(r#"{"a":1}"#),
        data("[1]").replace("[1],\"datatype", "[-1],\"datatype"),
        data("[1]").replace("[1],\"datatype", "[99999999999999999999],\"datatype"),
        data("[1]").replace("FP32", "BYTES"),
        data("[1]").replace("\"name\"", "\"nome\""),
        GOOD.replace("\"id\":\"7\"", "\"id\":7"),
        parameter(r#""priority":-1"#),
        parameter(r#""priority":"high""#),
        parameter(r#""sequence_id":1"#),
        parameter(&format!(r#""x":{}"#, deep(100_000))),
        parameter(r#""x":[1]"#),
        GOOD.replace("1500000", "-5"),
        GOOD.replace("\"data\":[[1.5,-2]]", "\"parameters\":{\"binary_data_size\":8},\"data\":[1]"),
        GOOD.replace(",\"data\":[[1.5,-2]]", ""),
        GOOD.replace("classification", "shared"),
    ];
    for (i, case) in cases.iter().enumerate() {
        let error = read_text(case).expect_err(&i.to_string());
        assert!(matches!(error, ApiError::Bad(_)), "{i}: {error}");
        assert!(error.to_string().len() < 1000, "{i}: {error}");
    }
    let shared = parameter(r#""shared_memory_region":"x""#);
    assert!(matches!(read_text(&shared), Err(ApiError::Unsupported(_))));
}

#[test]
fn names_unknown_parameters() {
    let error = read_text(&GOOD.replace("\"priority\":2", "\"sequence_id\":1")).unwrap_err().to_string();
    assert!(error.contains("`sequence_id`"), "{error}");
    assert!(error.contains("priority"), "{error}");
}

#[test]
fn writes_answers_as_json_or_binary() {
    let outputs = |binary| {
        let tensor = |name: &str, values| Tensor { name: name.into(), shape: vec![1, 1], values };
        let wanted = |name: &str, binary| Wanted { name: name.into(), binary, classes: 0 };
        vec![
            (tensor("a", Values::F32(vec![0.5])), wanted("a", binary)),
            (tensor("b", Values::Text(vec!["0.5:1".into()])), wanted("b", Some(false))),
        ]
    };
    let (text, raw) = write("m", "", &outputs(None), &[], false);
    let answer: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(answer["outputs"][0], json!({"name": "a", "datatype": "FP32", "shape": [1, 1], "data": [0.5]}));
    assert_eq!((answer["outputs"][1]["data"][0].as_str(), answer.get("id"), raw.len()), (Some("0.5:1"), None, 0));
    for (binary, binary_default) in [(None, true), (Some(true), false)] {
        let (text, raw) = write("m", "7", &outputs(binary), &[], binary_default);
        let answer: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(answer["outputs"][0]["parameters"]["binary_data_size"], 4);
        assert_eq!((answer["id"].as_str(), raw), (Some("7"), 0.5f32.to_le_bytes().to_vec()));
    }
}
