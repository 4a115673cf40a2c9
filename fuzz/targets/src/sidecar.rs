//! What an application says to the sidecar.
use tacit_sidecar::json;

/// A request: two bytes that say how much of it is JSON (0: all), then the body.
pub fn request(data: &[u8]) {
    let Some((length, body)) = data.split_first_chunk() else { return };
    let length = usize::from(u16::from_le_bytes(*length));
    if let Ok(request) = json::read(body, (length > 0).then_some(length)) {
        // Every number took a byte of it at least, and a nested list more.
        assert!(request.inputs.iter().all(|input| input.values.len() <= body.len()));
    }
}

/// One with numbers, and one with bytes behind the JSON.
pub fn request_seeds() -> Vec<Vec<u8>> {
    let numbers = br#"{"id":"7","parameters":{"timeout":1500,"priority":2},"inputs":[{"name":"input","shape":[1,2],
        "datatype":"FP32","data":[[1.5,-2e3]]}],"outputs":[{"name":"output","parameters":{"classification":3}}]}"#;
    let head = br#"{"parameters":{"binary_data_output":true},"inputs":[{"name":"input","shape":[1,1],"datatype":"FP64",
        "parameters":{"binary_data_size":8}}]}"#;
    let length = u16::try_from(head.len()).expect("it is short").to_le_bytes();
    vec![[&[0, 0], &numbers[..]].concat(), [&length, &head[..], &1.5f64.to_le_bytes()].concat()]
}
