//! The protocol over HTTP, against a server with toy models.
use crate::common::served::expected;
use crate::common::{Answer, Sidecar, TOKEN};
use serde_json::{Value, json};

const INFER: &str = "/v2/models/one/infer";
const X: [f32; 4] = [1.5, -2.0, 3.0, 0.25];

fn request(n: usize, more: Value) -> String {
    let data: Vec<f32> = std::iter::repeat_n(X, n).flatten().collect();
    let mut request = json!({"inputs": [{"name": "input", "shape": [n, 1, 2, 2], "datatype": "FP32", "data": data}]});
    request.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    request.to_string()
}

fn values(response: &Answer) -> Vec<f64> {
    assert_eq!(response.code, 200, "{}", String::from_utf8_lossy(&response.body));
    response.json()["outputs"][0]["data"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

#[test]
fn lists_models_and_infers() {
    let (_server, sidecar) = Sidecar::with_server();
    assert_eq!(sidecar.get("/v2").json()["name"], "tacit-sidecar");
    for path in ["/v2/health/live", "/v2/health/ready", "/v2/models/one/ready", "/v2/models/one/versions/1/ready"] {
        assert_eq!(sidecar.get(path).code, 200, "{path}");
    }
    let metadata = sidecar.get("/v2/models/one/versions/1").json();
    assert_eq!(metadata, sidecar.get("/v2/models/one").json());
    assert_eq!(metadata["inputs"], json!([{"name": "input", "datatype": "FP32", "shape": [-1, 1, 2, 2]}]));
    assert_eq!(metadata["outputs"], json!([{"name": "output", "datatype": "FP32", "shape": [-1, 2]}]));
    assert_eq!((&metadata["platform"], &metadata["versions"]), (&json!("tacit_toy"), &json!(["1"])));
    let index = sidecar.post("/v2/repository/index", "{\"ready\": true}").json();
    assert_eq!(index[1], json!({"name": "two", "version": "1", "state": "READY", "reason": ""}));
    let response = sidecar.post(INFER, &request(2, json!({"id": "a"})));
    assert_eq!(values(&response), expected(1, &X).repeat(2));
    assert_eq!(
        (response.json()["id"].clone(), response.json()["outputs"][0]["shape"].clone()),
        (json!("a"), json!([2, 2]))
    );
    assert_eq!(values(&sidecar.post("/v2/models/two/versions/1/infer", &request(1, json!({})))), expected(2, &X));
    let stats = sidecar.get("/v2/models/one/stats").json()["model_stats"][0].clone();
    assert_eq!((&stats["inference_count"], &stats["inference_stats"]["success"]["count"]), (&json!(2), &json!(1)));
    assert_eq!(sidecar.get("/v2/models/stats").json()["model_stats"].as_array().unwrap().len(), 2);
    for response in [response, sidecar.get("/v2"), sidecar.get("/v2/none")] {
        assert!(!response.headers.contains("access-control"));
        assert!(response.header("cache-control") == Some("no-store"));
    }
}

#[test]
fn sends_binary_tensors_and_ranks_classes() {
    let (_server, sidecar) = Sidecar::with_server();
    let head = json!({"parameters": {"binary_data_output": true, "priority": 1, "timeout": 60_000_000},
        "inputs": [{"name": "input", "shape": [1, 1, 2, 2], "datatype": "FP32", "parameters": {"binary_data_size": 16}}]});
    let head = head.to_string();
    let raw: Vec<u8> = X.iter().flat_map(|v| v.to_le_bytes()).collect();
    let length = format!("Inference-Header-Content-Length: {}", head.len());
    let kind = "Content-Type: application/octet-stream";
    let response = sidecar.ask("POST", INFER, &[&length, kind], &[head.as_bytes(), &raw].concat());
    assert_eq!(response.code, 200, "{}", String::from_utf8_lossy(&response.body));
    let length: usize = response.header("inference-header-content-length").unwrap().parse().unwrap();
    let (text, raw) = response.body.split_at(length);
    let header: Value = serde_json::from_slice(text).unwrap();
    assert_eq!(header["outputs"][0]["parameters"]["binary_data_size"], 8);
    let values: Vec<f64> = raw.chunks(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect();
    assert_eq!(values, expected(1, &X));
    let ranked = json!({"outputs": [{"name": "output", "parameters": {"classification": 2}}]});
    let response = sidecar.post(INFER, &request(1, ranked)).json();
    let [cat, other] = expected(1, &X)[..] else { panic!() };
    assert_eq!(response["outputs"][0]["datatype"], "BYTES");
    assert_eq!(response["outputs"][0]["data"], json!([format!("{other:.6}:1"), format!("{cat:.6}:0:cat")]));
}

#[test]
fn row_out_of_range_fails_alone() {
    let (_server, sidecar) = Sidecar::with_server();
    let good = sidecar.post(INFER, &request(2, json!({}))).json();
    assert!(good.get("parameters").is_none(), "{good}");
    let response = sidecar.post(INFER, &request(2, json!({})).replacen("1.5", "1e9", 1));
    assert_eq!(response.code, 200, "{response:?}");
    let response = response.json();
    let (values, wanted) =
        (response["outputs"][0]["data"].as_array().unwrap(), good["outputs"][0]["data"].as_array().unwrap());
    let half = wanted.len() / 2;
    assert!(values[..half].iter().all(serde_json::Value::is_null), "{response}");
    assert!(values[half..] == wanted[half..], "{response}");
    let (rows, why) =
        (&response["parameters"]["refused_rows"], response["parameters"]["refused_why"].as_str().unwrap());
    assert!(rows == "0", "{response}");
    assert!(why.starts_with("row 0: "), "{response}");
    assert!(why.contains("value 0 is 1000000000, the model accepts"), "{response}");
}

#[test]
fn refuses_bad_requests_by_name() {
    let (_server, sidecar) = Sidecar::with_server();
    let shape = request(1, json!({})).replace("[1,1,2,2]", "[1,2,2]");
    let range = request(1, json!({})).replace("1.5", "1e9");
    let cases = [
        (INFER, shape, "shape"),
        (INFER, range, "the model accepts"),
        (INFER, request(1, json!({})).replace("1.5", "1e39"), "finite"),
        (INFER, request(1, json!({})).replace("1.5", "NaN"), "JSON"),
        (INFER, request(5, json!({})), "batch of 5"),
        (INFER, request(1, json!({"parameters": {"sequence_id": 1}})), "`sequence_id`"),
        (INFER, request(1, json!({"outputs": [{"name": "x"}]})), "no output `x`"),
        (INFER, "[".repeat(50_000), "JSON"),
        (INFER, String::new(), "JSON"),
        ("/v2/repository/index", "{\"x\": 1}".into(), "ready"),
    ];
    for (path, body, says) in cases {
        let response = sidecar.post(path, &body);
        assert!(response.code == 400, "{says}: {response:?}");
        assert!(response.error().contains(says), "{says}: {response:?}");
    }
    for (path, code, says) in [
        ("/v2/models/three", 404, "`three`"),
        ("/v2/models/one/versions/2", 404, "version `2`"),
        ("/v3", 404, "path"),
        ("/page/progress", 400, "model=NAME"),
        (INFER, 405, "method"),
        ("/v2/systemsharedmemory/status", 501, "system shared memory"),
        ("/v2/cudasharedmemory/region/x/register", 501, "CUDA shared memory"),
        ("/v2/models/one/config", 501, "`config`"),
        ("/v2/models/one/trace/setting", 501, "`trace`"),
        ("/v2/repository/models/one/load", 501, "loading"),
        ("/v2/logging", 501, "log"),
    ] {
        let response = sidecar.get(path);
        assert!(response.code == code, "{path}: {response:?}");
        assert!(response.error().contains(says), "{path}: {response:?}");
    }
    for (header, code) in [
        ("Content-Type: text/plain", 415),
        ("Content-Type: application/x-www-form-urlencoded", 415),
        ("Content-Encoding: gzip", 415),
        ("Inference-Header-Content-Length: -1", 400),
        ("Inference-Header-Content-Length: 18446744073709551616", 400),
        ("Inference-Header-Content-Length: 999999", 400),
    ] {
        let response = sidecar.ask("POST", INFER, &[header], request(1, json!({})).as_bytes());
        assert_eq!(response.code, code, "{header}: {response:?}");
    }
    let proto = sidecar.get("/open_inference.proto");
    assert!(proto.code == 200);
    assert!(String::from_utf8_lossy(&proto.body).contains("service GRPCInferenceService"));
    assert_eq!(values(&sidecar.post(INFER, &request(1, json!({})))), expected(1, &X), "still in order");
    assert_eq!(sidecar.get("/v2/models/one/stats").json()["model_stats"][0]["inference_stats"]["success"]["count"], 1);
}

#[test]
fn refuses_strangers_pages_and_floods() {
    let (_server, sidecar) = Sidecar::with_server();
    let token = format!("Authorization: Bearer {TOKEN}");
    let ask = |headers: &[&str]| sidecar.ask_as("GET", "/v2/models/one", headers, b"");
    assert_eq!((ask(&[]).code, ask(&["Authorization: Bearer wrong"]).code), (401, 401));
    assert_eq!(ask(&[&token, "Host: evil.example"]).code, 403);
    assert_eq!(ask(&[&token, "Origin: http://evil.example"]).code, 403);
    assert_eq!(ask(&[&token, "Origin: null"]).code, 403);
    assert_eq!(ask(&[&token, &format!("Origin: http://{}", sidecar.address)]).code, 200);
    let response = sidecar.ask_as("OPTIONS", INFER, &["Origin: http://evil.example"], b"");
    assert!(response.code == 403, "{response:?}");
    assert!(!response.headers.contains("access-control"), "{response:?}");
    // Long bodies with and without a length.
    let head = format!("POST {INFER} HTTP/1.1\r\nHost: {}\r\n{token}\r\n", sidecar.address);
    let long = sidecar.exchange(format!("{head}Content-Length: 99999999999\r\n\r\n").as_bytes());
    assert_eq!(long.code, 413, "{long:?}");
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 16, " ".repeat(1 << 16)).repeat(3);
    let chunked = sidecar.exchange(format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunk}0\r\n\r\n").as_bytes());
    assert!(chunked.code == 413 || chunked.code == 0, "{chunked:?}");
    let headers: Vec<String> = (0..200).map(|i| format!("X-{i}: x")).collect();
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    assert_eq!(ask(&headers).code, 431);
    let wide = format!("X: {}", "x".repeat(100_000));
    assert!(matches!(ask(&[&wide]).code, 0 | 431));
    assert_eq!(ask(&[&token]).code, 200, "still in order");
}
