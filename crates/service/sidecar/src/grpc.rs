//! The protocol over gRPC.
use crate::ApiError;
use crate::fleet::{self, Fleet, Reply, VERSION};
use crate::json::{Parameters, Scalar, Settings, unknown_parameter, wanted_output};
use crate::metadata::{TensorDescription, Wanted};
use crate::rest::{EXTENSIONS, SERVER_NAME, platform, state_and_reason};
use crate::rows;
use crate::stats::{Counts, Total, Totals};
use crate::tensor::{Tensor, Values, unsupported_datatype};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

/// Code generated from the protocol's file.
#[allow(missing_docs, clippy::all, clippy::use_self)]
pub mod proto {
    tonic::include_proto!("inference");
}

use proto::grpc_inference_service_server::{GrpcInferenceService, GrpcInferenceServiceServer};
use proto::infer_parameter::ParameterChoice;
use proto::model_infer_request::InferInputTensor;
use proto::model_infer_response::InferOutputTensor;
use proto::model_metadata_response::TensorMetadata;
use proto::repository_index_response::ModelIndex;
use proto::{
    InferParameter, InferStatistics, InferTensorContents, ModelInferRequest, ModelInferResponse, ModelMetadataRequest,
    ModelMetadataResponse, ModelReadyRequest, ModelReadyResponse, ModelStatistics, ModelStatisticsRequest,
    ModelStatisticsResponse, ModelStreamInferResponse, RepositoryIndexRequest, RepositoryIndexResponse,
    ServerLiveRequest, ServerLiveResponse, ServerMetadataRequest, ServerMetadataResponse, ServerReadyRequest,
    ServerReadyResponse, StatisticDuration,
};

pub(crate) struct Service {
    fleet: Arc<Fleet>,
}

/// The gRPC service of a fleet; messages have at most `max_bytes` bytes.
pub(crate) fn service(fleet: Arc<Fleet>, max_bytes: usize) -> GrpcInferenceServiceServer<Service> {
    GrpcInferenceServiceServer::new(Service { fleet }).max_decoding_message_size(max_bytes)
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl GrpcInferenceService for Service {
    type ModelStreamInferStream = tonic::codegen::tokio_stream::Empty<Result<ModelStreamInferResponse, Status>>;

    async fn server_live(&self, _: Request<ServerLiveRequest>) -> Answer<ServerLiveResponse> {
        Ok(Response::new(ServerLiveResponse { live: true }))
    }

    async fn server_ready(&self, _: Request<ServerReadyRequest>) -> Answer<ServerReadyResponse> {
        Ok(Response::new(ServerReadyResponse { ready: self.fleet.ready().is_ok() }))
    }

    async fn model_ready(&self, request: Request<ModelReadyRequest>) -> Answer<ModelReadyResponse> {
        let ModelReadyRequest { name, version } = request.into_inner();
        let ready = self.fleet.lane(&name, &version)?.ready().is_ok();
        Ok(Response::new(ModelReadyResponse { ready }))
    }

    async fn server_metadata(&self, _: Request<ServerMetadataRequest>) -> Answer<ServerMetadataResponse> {
        let (name, version) = (SERVER_NAME.into(), env!("CARGO_PKG_VERSION").into());
        let extensions = EXTENSIONS.iter().map(|&name| name.into()).collect();
        Ok(Response::new(ServerMetadataResponse { name, version, extensions }))
    }

    async fn model_metadata(&self, request: Request<ModelMetadataRequest>) -> Answer<ModelMetadataResponse> {
        let ModelMetadataRequest { name, version } = request.into_inner();
        let metadata = self.fleet.lane(&name, &version)?.metadata()?;
        let describe =
            |TensorDescription { name, datatype, shape }| TensorMetadata { name, datatype: datatype.into(), shape };
        Ok(Response::new(ModelMetadataResponse {
            name,
            versions: vec![VERSION.into()],
            platform: platform(&metadata.backend),
            inputs: vec![describe(metadata.input())],
            outputs: metadata.outputs().into_iter().map(describe).collect(),
        }))
    }

    async fn model_infer(&self, request: Request<ModelInferRequest>) -> Answer<ModelInferResponse> {
        let deadline = deadline(request.metadata())?;
        let request = request.into_inner();
        let lane = self.fleet.lane(&request.model_name, &request.model_version)?;
        let (model_name, id, raw) = (request.model_name.clone(), request.id.clone(), answers_raw(&request));
        let mut request = fleet::decode(move || read(request)).await?;
        request.timeout = request.timeout.into_iter().chain(deadline).min();
        let Reply { outputs, refused } = fleet::infer(&lane, request).await?;
        let (outputs, raw_output_contents) = convert_outputs(outputs, raw);
        let parameters = rows::refusal_parameters(&refused).into_iter().map(|(name, value)| {
            (name.to_owned(), InferParameter { parameter_choice: Some(ParameterChoice::StringParam(value)) })
        });
        let (model_version, parameters) = (VERSION.into(), parameters.collect());
        Ok(Response::new(ModelInferResponse {
            model_name,
            model_version,
            id,
            parameters,
            outputs,
            raw_output_contents,
        }))
    }

    async fn model_stream_infer(
        &self,
        _: Request<Streaming<ModelInferRequest>>,
    ) -> Answer<Self::ModelStreamInferStream> {
        Err(ApiError::Unsupported("`ModelStreamInfer`".into()).into())
    }

    async fn model_statistics(&self, request: Request<ModelStatisticsRequest>) -> Answer<ModelStatisticsResponse> {
        let ModelStatisticsRequest { name, version } = request.into_inner();
        let counts = self.fleet.counts((!name.is_empty()).then_some((&name, &version)))?;
        let model_stats = counts.into_iter().map(|(name, counts)| statistics(name, counts)).collect();
        Ok(Response::new(ModelStatisticsResponse { model_stats }))
    }

    async fn repository_index(&self, request: Request<RepositoryIndexRequest>) -> Answer<RepositoryIndexResponse> {
        let RepositoryIndexRequest { repository_name, ready } = request.into_inner();
        if !repository_name.is_empty() {
            return Err(ApiError::NotFound("there is one repository, and it has no name".into()).into());
        }
        let lanes = self.fleet.lanes();
        let listed = lanes.iter().map(|lane| (lane, lane.ready())).filter(|(_, state)| state.is_ok() || !ready);
        let models = listed.map(|(lane, state)| {
            let [state, reason] = state_and_reason(state);
            ModelIndex { name: lane.name().into(), version: VERSION.into(), state, reason }
        });
        Ok(Response::new(RepositoryIndexResponse { models: models.collect() }))
    }
}

fn statistics(name: String, counts: Counts) -> ModelStatistics {
    // The message has no field for batch sizes.
    let Counts { last_inference, inference_count, execution_count, inference_stats, batches: _ } = counts;
    let Totals { success, fail, queue, compute_input, compute_infer, compute_output, cache_hit, cache_miss } =
        inference_stats;
    let inference_stats = Some(InferStatistics {
        success: total(success),
        fail: total(fail),
        queue: total(queue),
        compute_input: total(compute_input),
        compute_infer: total(compute_infer),
        compute_output: total(compute_output),
        cache_hit: total(cache_hit),
        cache_miss: total(cache_miss),
    });
    let version = VERSION.into();
    ModelStatistics { name, version, last_inference, inference_count, execution_count, inference_stats }
}

fn total(total: Total) -> Option<StatisticDuration> {
    Some(StatisticDuration { count: total.count, ns: total.ns })
}

/// The time limit of the caller, from the header `grpc-timeout`: up to eight digits and a unit.
fn deadline(metadata: &MetadataMap) -> Result<Option<Duration>, ApiError> {
    let Some(header) = metadata.get("grpc-timeout") else { return Ok(None) };
    let header = header.to_str().unwrap_or("");
    let split = header.split_at_checked(header.len().saturating_sub(1));
    let split = split.filter(|(count, _)| (1..=8).contains(&count.len()) && count.bytes().all(|b| b.is_ascii_digit()));
    let (count, unit) = split.unwrap_or(("", ""));
    let nanoseconds: u64 = match unit {
        "H" => 3_600_000_000_000,
        "M" => 60_000_000_000,
        "S" => 1_000_000_000,
        "m" => 1_000_000,
        "u" => 1_000,
        "n" => 1,
        _ => return Err(ApiError::Bad("grpc-timeout is no time".into())),
    };
    let count: u64 = count.parse().map_err(|_| ApiError::Bad("grpc-timeout is no time".into()))?;
    Ok(Some(Duration::from_nanos(count.saturating_mul(nanoseconds))))
}

/// Whether the answer carries raw bytes, as most clients prefer: yes, unless the request used typed
/// values.
fn answers_raw(request: &ModelInferRequest) -> bool {
    request.inputs.iter().all(|input| input.contents.is_none())
}

/// Decodes an inference request.
///
/// # Errors
/// [`ApiError::Bad`], [`ApiError::Unsupported`].
pub fn read(request: ModelInferRequest) -> Result<fleet::Request, ApiError> {
    let ModelInferRequest { id, parameters, inputs, outputs, raw_input_contents, .. } = request;
    let Settings { timeout, priority, binary } = Settings::from_parameters(&scalars(parameters)?)?;
    if !raw_input_contents.is_empty() && raw_input_contents.len() != inputs.len() {
        let (raw, inputs) = (raw_input_contents.len(), inputs.len());
        return Err(ApiError::Bad(format!("{raw} raw_input_contents for {inputs} inputs")));
    }
    let mut raws = raw_input_contents.into_iter();
    let inputs = inputs.into_iter().map(|input| {
        let InferInputTensor { name, datatype, shape, parameters, contents } = input;
        if let Some(name) = parameters.keys().next() {
            return Err(unknown_parameter("of an input", name, "none"));
        }
        let values = match (contents, raws.next()) {
            (Some(contents), None) => typed(&datatype, contents)?,
            (None, Some(bytes)) => Values::from_bytes(&datatype, &bytes)?,
            _ => return Err(ApiError::Bad("inputs have either contents or raw_input_contents".into())),
        };
        let shape = shape.into_iter().map(usize::try_from).collect::<Result<_, _>>();
        let shape = shape.map_err(|_| ApiError::Bad("an axis of negative length".into()))?;
        Ok(Tensor { name, shape, values })
    });
    let inputs = inputs.collect::<Result<_, _>>()?;
    let outputs = outputs.into_iter().map(|output| wanted_output(output.name, &scalars(output.parameters)?));
    let outputs: Vec<Wanted> = outputs.collect::<Result<_, _>>()?;
    Ok(fleet::Request { id, inputs, outputs, timeout, priority, binary })
}

fn scalars(parameters: HashMap<String, InferParameter>) -> Result<Parameters, ApiError> {
    let scalars = parameters.into_iter().map(|(name, value)| scalar(&name, value).map(|scalar| (name, scalar)));
    scalars.collect()
}

fn scalar(name: &str, value: InferParameter) -> Result<Scalar, ApiError> {
    Ok(match value.parameter_choice {
        Some(ParameterChoice::BoolParam(v)) => Scalar::Flag(v),
        Some(ParameterChoice::Int64Param(v)) => Scalar::Whole(v),
        Some(ParameterChoice::StringParam(v)) => Scalar::Text(v),
        Some(ParameterChoice::DoubleParam(v)) => Scalar::Real(v),
        Some(ParameterChoice::Uint64Param(v)) => i64::try_from(v).map_or(Scalar::Real(v as f64), Scalar::Whole),
        None => return Err(unknown_parameter("of the request", name, "those with a value")),
    })
}

/// Takes values from the list of their datatype; all other lists must be empty.
fn typed(datatype: &str, mut contents: InferTensorContents) -> Result<Values, ApiError> {
    let values = match datatype {
        "FP32" => Values::F32(std::mem::take(&mut contents.fp32_contents)),
        "FP64" => Values::F64(std::mem::take(&mut contents.fp64_contents)),
        "UINT8" => Values::from_whole(&std::mem::take(&mut contents.uint_contents))?,
        datatype => return Err(unsupported_datatype(datatype)),
    };
    if contents != InferTensorContents::default() {
        return Err(ApiError::Bad("the contents are not in the list of the datatype alone".into()));
    }
    values.check_finite()
}

/// Converts outputs to their messages, and to their bytes if these follow raw.
fn convert_outputs(outputs: Vec<(Tensor, Wanted)>, raw: bool) -> (Vec<InferOutputTensor>, Vec<Vec<u8>>) {
    let raws = if raw { outputs.iter().map(|(tensor, _)| tensor.values.to_bytes()).collect() } else { vec![] };
    (outputs.into_iter().map(|(tensor, _)| output(tensor, raw)).collect(), raws)
}

/// Converts an output to its message, without contents if these follow raw.
fn output(tensor: Tensor, raw: bool) -> InferOutputTensor {
    let Tensor { name, shape, values } = tensor;
    let (datatype, shape) = (values.datatype().into(), shape.into_iter().map(|n| n as i64).collect());
    let mut contents = InferTensorContents::default();
    match values {
        Values::F32(v) => contents.fp32_contents = v,
        Values::F64(v) => contents.fp64_contents = v,
        Values::U8(v) => contents.uint_contents = v.into_iter().map(u32::from).collect(),
        Values::I64(v) => contents.int64_contents = v,
        Values::Text(v) => contents.bytes_contents = v.into_iter().map(String::into_bytes).collect(),
    }
    InferOutputTensor { name, datatype, shape, parameters: HashMap::new(), contents: (!raw).then_some(contents) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_deadlines() {
        let parse = |text: &str| {
            let mut metadata = MetadataMap::new();
            metadata.insert("grpc-timeout", text.parse().unwrap());
            deadline(&metadata)
        };
        assert_eq!(deadline(&MetadataMap::new()), Ok(None));
        for (text, time) in [
            ("2S", Duration::from_secs(2)),
            ("99999999m", Duration::from_millis(99_999_999)),
            ("1H", Duration::from_secs(3600)),
            ("7n", Duration::from_nanos(7)),
        ] {
            assert_eq!(parse(text), Ok(Some(time)), "{text}");
        }
        for text in ["", "S", "2", "2x", "-2S", "123456789S", "2 S"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rejects_contents_of_other_datatype() {
        let contents = InferTensorContents { fp32_contents: vec![1.5], ..InferTensorContents::default() };
        assert_eq!(typed("FP32", contents.clone()).unwrap(), Values::F32(vec![1.5]));
        assert!(typed("FP64", contents.clone()).is_err());
        assert!(typed("FP32", InferTensorContents { uint_contents: vec![1], ..contents }).is_err());
        let pixels = InferTensorContents { uint_contents: vec![256], ..InferTensorContents::default() };
        assert!(typed("UINT8", pixels).is_err());
        let nan = InferTensorContents { fp32_contents: vec![f32::NAN], ..InferTensorContents::default() };
        assert!(typed("FP32", nan).is_err());
    }
}
