//! The protocol over gRPC, against a server with toy models.
use crate::common::served::{Running, expected, wait_until};
use crate::common::{Sidecar, TOKEN};
use tacit_sidecar::grpc::proto::grpc_inference_service_client::GrpcInferenceServiceClient;
use tacit_sidecar::grpc::proto::infer_parameter::ParameterChoice;
use tacit_sidecar::grpc::proto::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use tacit_sidecar::grpc::proto::*;
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};

const X: [f32; 4] = [1.5, -2.0, 3.0, 0.25];

fn with_token<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {TOKEN}").parse().unwrap());
    request
}

fn raw() -> ModelInferRequest {
    let bytes: Vec<u8> = X.iter().flat_map(|v| v.to_le_bytes()).collect();
    ModelInferRequest {
        model_name: "one".into(),
        id: "7".into(),
        inputs: vec![InferInputTensor {
            name: "input".into(),
            datatype: "FP32".into(),
            shape: vec![1, 1, 2, 2],
            ..InferInputTensor::default()
        }],
        raw_input_contents: vec![bytes.into()],
        ..ModelInferRequest::default()
    }
}

fn typed() -> ModelInferRequest {
    let mut request = raw();
    request.raw_input_contents.clear();
    request.inputs[0].contents =
        Some(InferTensorContents { fp32_contents: X.to_vec(), ..InferTensorContents::default() });
    request
}

fn parameter(value: ParameterChoice) -> InferParameter {
    InferParameter { parameter_choice: Some(value) }
}

async fn client(sidecar: &Sidecar) -> GrpcInferenceServiceClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", sidecar.grpc)).unwrap();
    GrpcInferenceServiceClient::new(endpoint.connect().await.unwrap())
}

#[test]
fn lists_models_and_infers() {
    let (_server, sidecar) = Sidecar::with_server();
    Runtime::new().unwrap().block_on(async {
        let mut client = client(&sidecar).await;
        assert!(client.server_live(with_token(ServerLiveRequest {})).await.unwrap().into_inner().live);
        assert!(client.server_ready(with_token(ServerReadyRequest {})).await.unwrap().into_inner().ready);
        let named = ModelReadyRequest { name: "two".into(), version: "1".into() };
        assert!(client.model_ready(with_token(named)).await.unwrap().into_inner().ready);
        let metadata = client.server_metadata(with_token(ServerMetadataRequest {})).await.unwrap().into_inner();
        assert_eq!(metadata.name, "tacit-sidecar");
        let named = ModelMetadataRequest { name: "one".into(), version: String::new() };
        let metadata = client.model_metadata(with_token(named)).await.unwrap().into_inner();
        assert_eq!((metadata.inputs[0].name.as_str(), &metadata.inputs[0].shape), ("input", &vec![-1, 1, 2, 2]));
        let answer = client.model_infer(with_token(raw())).await.unwrap().into_inner();
        let values = answer.raw_output_contents[0].chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
        assert_eq!(values.map(f64::from).collect::<Vec<_>>(), expected(1, &X));
        assert_eq!((answer.id.as_str(), &answer.outputs[0].shape), ("7", &vec![1, 2]));
        let answer = client.model_infer(with_token(typed())).await.unwrap().into_inner();
        let values = answer.outputs[0].contents.as_ref().unwrap().fp32_contents.iter().map(|&v| f64::from(v));
        assert_eq!(values.collect::<Vec<_>>(), expected(1, &X));
        let mut ranked = typed();
        let one = [("classification".to_owned(), parameter(ParameterChoice::Int64Param(1)))];
        ranked.outputs = vec![InferRequestedOutputTensor { name: "output".into(), parameters: one.into() }];
        let answer = client.model_infer(with_token(ranked)).await.unwrap().into_inner();
        assert!(answer.outputs[0].contents.as_ref().unwrap().bytes_contents[0].ends_with(b":1"));
        let stats = client.model_statistics(with_token(ModelStatisticsRequest::default())).await.unwrap().into_inner();
        assert_eq!((stats.model_stats[0].inference_count, stats.model_stats[1].inference_count), (3, 0));
        let index = client.repository_index(with_token(RepositoryIndexRequest::default())).await.unwrap().into_inner();
        assert_eq!(index.models[0].state, "READY");
    });
}

#[test]
fn used_up_quota_names_retry_time() {
    let server = Running::start_with_rules("queries_per_day = 1", "", |_| {});
    let sidecar = Sidecar::start(&server, |_| {});
    Runtime::new().unwrap().block_on(async {
        let mut client = client(&sidecar).await;
        client.model_infer(with_token(raw())).await.unwrap();
        let refused = client.model_infer(with_token(raw())).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        assert!(refused.message().contains("quota of 1"), "{refused}");
        let again = refused.metadata().get("retry-after").unwrap().to_str().unwrap();
        assert!((1..=86_400).contains(&again.parse::<u64>().unwrap()), "until midnight: {again}");
    });
}

#[test]
fn refuses_bad_requests_with_code() {
    let (_server, sidecar) = Sidecar::with_server();
    let changed = |change: fn(&mut ModelInferRequest)| {
        let mut request = raw();
        change(&mut request);
        request
    };
    let cases = [
        (changed(|r| r.model_name = "three".into()), Code::NotFound),
        (changed(|r| r.model_version = "2".into()), Code::NotFound),
        (changed(|r| r.inputs[0].shape = vec![1, 4]), Code::InvalidArgument),
        (changed(|r| r.inputs[0].shape = vec![-1, 1, 2, 2]), Code::InvalidArgument),
        (changed(|r| r.inputs[0].datatype = "INT8".into()), Code::InvalidArgument),
        (changed(|r| r.raw_input_contents.clear()), Code::InvalidArgument),
        (changed(|r| r.raw_input_contents[0] = f32::NAN.to_le_bytes().repeat(4).into()), Code::InvalidArgument),
        (changed(|r| r.inputs[0].contents = Some(InferTensorContents::default())), Code::InvalidArgument),
        (changed(|r| drop(r.parameters.insert("x".into(), InferParameter::default()))), Code::InvalidArgument),
        (
            changed(|r| {
                let region = parameter(ParameterChoice::StringParam("x".into()));
                r.inputs[0].parameters.insert("shared_memory_region".into(), region);
            }),
            Code::Unimplemented,
        ),
    ];
    Runtime::new().unwrap().block_on(async {
        let mut client = client(&sidecar).await;
        for (i, (request, code)) in cases.into_iter().enumerate() {
            let error = client.model_infer(with_token(request)).await.unwrap_err();
            assert_eq!(error.code(), code, "{i}: {error}");
        }
        let mut many = raw();
        many.inputs = vec![InferInputTensor::default(); 5000];
        assert_eq!(client.model_infer(with_token(many)).await.unwrap_err().code(), Code::InvalidArgument);
        let mut long = raw();
        long.raw_input_contents[0] = vec![0; 100_000].into();
        assert_eq!(client.model_infer(with_token(long)).await.unwrap_err().code(), Code::OutOfRange);
        let error = client.model_infer(Request::new(raw())).await.unwrap_err();
        assert_eq!(error.code(), Code::Unauthenticated);
        let mut page = with_token(raw());
        page.metadata_mut().insert("origin", "http://evil.example".parse().unwrap());
        assert_eq!(client.model_infer(page).await.unwrap_err().code(), Code::PermissionDenied);
        let stream = with_token(tonic::codegen::tokio_stream::iter([raw()]));
        assert_eq!(client.model_stream_infer(stream).await.unwrap_err().code(), Code::Unimplemented);
        assert!(client.model_infer(with_token(raw())).await.is_ok(), "still in order");
    });
}

/// Waits within a runtime.
fn wait_for(condition: &str, holds: impl FnMut() -> bool) {
    tokio::task::block_in_place(|| wait_until(condition, holds));
}

#[test]
fn keeps_deadlines_and_refuses_when_full() {
    let (_server, gate, sidecar) = Sidecar::gated(|c| c.queue = 1);
    let lane = sidecar.fleet.lane("one", "").unwrap();
    gate.set(false);
    Runtime::new().unwrap().block_on(async {
        let ask = |request| {
            let sidecar = &sidecar;
            async move { client(sidecar).await.model_infer(request).await }
        };
        let never = |mut client: GrpcInferenceServiceClient<Channel>| async move {
            client.model_infer(with_token(raw())).await
        };
        let running = tokio::spawn(never(client(&sidecar).await));
        wait_for("it runs", || lane.running() == 1);
        let waiting = tokio::spawn(never(client(&sidecar).await));
        wait_for("it waits", || lane.waiting() == 1);
        assert_eq!(ask(with_token(raw())).await.unwrap_err().code(), Code::ResourceExhausted);
        waiting.abort();
        wait_for("an abandoned call makes room", || lane.waiting() == 0);
        let mut late = with_token(raw());
        late.metadata_mut().insert("grpc-timeout", "300m".parse().unwrap());
        // The client may notice the timeout before the sidecar does.
        let code = ask(late).await.unwrap_err().code();
        assert!(matches!(code, Code::DeadlineExceeded | Code::Cancelled), "{code}");
        wait_for("it no longer waits", || lane.waiting() == 0);
        gate.set(true);
        assert!(running.await.unwrap().is_ok());
        gate.set(false);
        let mut late = raw();
        late.parameters.insert("timeout".into(), parameter(ParameterChoice::Int64Param(300_000)));
        assert_eq!(ask(with_token(late)).await.unwrap_err().code(), Code::DeadlineExceeded);
        wait_for("its connection was ended", || lane.running() == 0);
        let mut late = with_token(raw());
        late.metadata_mut().insert("grpc-timeout", "300m".parse().unwrap());
        gate.set(true);
        wait_for("there is another", || lane.ready().is_ok());
        gate.set(false);
        ask(late).await.unwrap_err();
        wait_for("nothing runs past its time", || lane.running() == 0);
        gate.set(true);
        // A call without a deadline is cancelled while it runs.
        while ask(with_token(raw())).await.is_err() {}
        gate.set(false);
        let running = tokio::spawn(never(client(&sidecar).await));
        wait_for("it runs", || lane.running() == 1);
        running.abort();
        wait_for("what runs is ended", || lane.running() == 0);
        gate.set(true);
    });
}
