//! What an application says to the sidecar.
use prost::{DecodeError, Message};
use tacit_sidecar::grpc::proto::infer_parameter::ParameterChoice;
use tacit_sidecar::grpc::proto::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use tacit_sidecar::grpc::proto::{
    InferParameter, InferTensorContents, ModelInferRequest, ModelMetadataRequest, ModelStatisticsRequest,
    RepositoryIndexRequest,
};
use tacit_sidecar::{codec, grpc, json};

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

/// A gRPC message: a byte that says of which kind, then what its frame holds.
pub fn message(data: &[u8]) {
    let Some((kind, body)) = data.split_first() else { return };
    let _: Result<(), DecodeError> = match kind % 4 {
        0 => inference(body),
        1 => ModelMetadataRequest::decode(body).map(drop),
        2 => ModelStatisticsRequest::decode(body).map(drop),
        _ => RepositoryIndexRequest::decode(body).map(drop),
    };
}

fn inference(body: &[u8]) -> Result<(), DecodeError> {
    if codec::check(body).is_err() {
        return Ok(());
    }
    if let Ok(request) = grpc::read(ModelInferRequest::decode(body)?) {
        // Every number took a byte of it at least.
        assert!(request.inputs.iter().all(|input| input.values.len() <= body.len()));
    }
    Ok(())
}

/// One inference with numbers in their list, one with bytes; and a question about models.
pub fn message_seeds() -> Vec<Vec<u8>> {
    let parameter = |value| InferParameter { parameter_choice: Some(value) };
    let tensor = |datatype: &str, contents| InferInputTensor {
        name: "input".into(),
        datatype: datatype.into(),
        shape: vec![1, 2],
        contents,
        ..InferInputTensor::default()
    };
    let typed = InferTensorContents { fp32_contents: vec![1.5, -2e3], ..InferTensorContents::default() };
    let ranked = InferRequestedOutputTensor {
        name: "output".into(),
        parameters: [("classification".to_owned(), parameter(ParameterChoice::Int64Param(3)))].into(),
    };
    let numbers = ModelInferRequest {
        model_name: "digits".into(),
        id: "7".into(),
        parameters: [("timeout".to_owned(), parameter(ParameterChoice::Int64Param(1500)))].into(),
        inputs: vec![tensor("FP32", Some(typed))],
        outputs: vec![ranked],
        ..ModelInferRequest::default()
    };
    let bytes = ModelInferRequest {
        inputs: vec![tensor("UINT8", None)],
        raw_input_contents: vec![vec![7, 255].into()],
        ..numbers.clone()
    };
    let index = RepositoryIndexRequest { repository_name: "none".into(), ready: true };
    let kinds = [(0, numbers.encode_to_vec()), (0, bytes.encode_to_vec()), (3, index.encode_to_vec())];
    kinds.into_iter().map(|(kind, message)| [vec![kind], message].concat()).collect()
}
