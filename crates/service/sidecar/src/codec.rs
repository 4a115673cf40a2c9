//! Decodes messages with memory in proportion to their length. Two bytes can encode a whole tensor,
//! and one byte a number of eight, at any depth. So the memory of a message is counted before the
//! message is decoded.
use prost::Message;
use prost::bytes::Buf;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// Most fields of a message, without numbers of lists. A request has a handful.
const MAX_FIELDS: usize = 1024;
/// Most bytes of memory for each byte of a message: a pixel of one byte becomes a number of four.
const MAX_RATIO: usize = 4;
/// Bytes of memory that a message may take in addition.
const FRAME_MEMORY: usize = 256 << 10;
/// Bytes of memory of a field that is not a number of a list.
const FIELD_MEMORY: usize = 200;

/// A message type, as the decoder meets it.
#[derive(Clone, Copy, PartialEq)]
enum MessageType {
    /// Any request: for inference, or with fewer fields.
    Request,
    Input,
    Output,
    Contents,
    /// Name and value of a parameter.
    Entry,
    Parameter,
}

/// Content of a length-delimited field.
enum FieldContent {
    Message(MessageType),
    /// Numbers of variable length, each with this number of bytes in memory.
    Numbers(usize),
    /// Plain bytes: text, data, numbers of fixed length.
    Bytes,
}

impl MessageType {
    /// The content of field `number`, by the protocol's file.
    fn field_content(self, number: u64) -> FieldContent {
        match (self, number) {
            (Self::Request, 4) | (Self::Input, 4) | (Self::Output, 2) => FieldContent::Message(Self::Entry),
            (Self::Request, 5) => FieldContent::Message(Self::Input),
            (Self::Request, 6) => FieldContent::Message(Self::Output),
            (Self::Input, 5) => FieldContent::Message(Self::Contents),
            (Self::Entry, 2) => FieldContent::Message(Self::Parameter),
            (Self::Contents, 1) => FieldContent::Numbers(1),
            (Self::Contents, 2 | 4) => FieldContent::Numbers(4),
            (Self::Input, 3) | (Self::Contents, 3 | 5) => FieldContent::Numbers(8),
            _ => FieldContent::Bytes,
        }
    }

    /// Whether a field is one number of an unpacked list.
    fn is_listed(self, number: u64) -> bool {
        self == Self::Contents && (1..=7).contains(&number)
    }
}

/// As [`ProstCodec`], with the memory limit.
pub(crate) struct Counted<T, U>(ProstCodec<T, U>);

impl<T: Message + Send + 'static, U: Message + Default + Send + 'static> Default for Counted<T, U> {
    fn default() -> Self {
        Self(ProstCodec::default())
    }
}

impl<T: Message + Send + 'static, U: Message + Default + Send + 'static> Codec for Counted<T, U> {
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = CountedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        self.0.encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        CountedDecoder(self.0.decoder())
    }
}

pub(crate) struct CountedDecoder<U>(ProstDecoder<U>);

impl<U: Message + Default> Decoder for CountedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // The whole message is gathered in one piece.
        check(bytes.chunk()).map_err(Status::invalid_argument)?;
        self.0.decode(bytes)
    }
}

struct Budget {
    fields: usize,
    memory: usize,
}

/// Checks a message before it is decoded.
///
/// # Errors
/// Decoding would take many times the message's length.
pub fn check(bytes: &[u8]) -> Result<(), String> {
    let memory = FRAME_MEMORY + MAX_RATIO * bytes.len();
    walk(bytes, MessageType::Request, &mut Budget { fields: MAX_FIELDS, memory })
}

/// Walks through a message up to the first malformed byte: the decoder refuses the rest.
fn walk(mut bytes: &[u8], message_type: MessageType, budget: &mut Budget) -> Result<(), String> {
    while let Some((key, rest)) = number(bytes) {
        let field = key >> 3;
        let (content, after) = match key & 7 {
            0 => (None, number(rest).map(|(_, after)| after)),
            1 => (None, rest.get(8..)),
            2 => match delimited(rest) {
                Some((content, after)) => (Some(content), Some(after)),
                None => (None, None),
            },
            5 => (None, rest.get(4..)),
            // The protocol's messages have no groups.
            _ => (None, None),
        };
        let Some(after) = after else { return Ok(()) };
        bytes = after;
        if content.is_none() && message_type.is_listed(field) {
            budget.take(8)?;
            continue;
        }
        budget.fields =
            budget.fields.checked_sub(1).ok_or_else(|| format!("a message of more than {MAX_FIELDS} fields"))?;
        budget.take(FIELD_MEMORY)?;
        match (content, message_type.field_content(field)) {
            // The message types have no cycle, so the depth is at most five.
            (Some(content), FieldContent::Message(inner)) => walk(content, inner, budget)?,
            // Each number ends with a byte below 0x80.
            (Some(content), FieldContent::Numbers(size)) => {
                budget.take(size * content.iter().filter(|byte| **byte < 0x80).count())?;
            }
            (Some(content), FieldContent::Bytes) => budget.take(content.len())?,
            (None, _) => {}
        }
    }
    Ok(())
}

impl Budget {
    /// Subtracts bytes of memory.
    ///
    /// # Errors
    /// Fewer bytes are left.
    fn take(&mut self, memory: usize) -> Result<(), String> {
        let memory_left = self.memory.checked_sub(memory);
        self.memory = memory_left.ok_or("a message that would take many times its length in memory")?;
        Ok(())
    }
}

/// The content of a length-delimited field, and the rest.
fn delimited(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = number(bytes)?;
    rest.split_at_checked(usize::try_from(length).ok()?)
}

/// A number of variable length, and the rest.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let end = bytes.iter().take(10).position(|byte| byte & 0x80 == 0)?;
    let (varint, rest) = bytes.split_at(end + 1);
    Some((varint.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f)), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::proto::model_infer_request::InferInputTensor;
    use crate::grpc::proto::{InferTensorContents, ModelInferRequest};

    fn typed_request(contents: InferTensorContents) -> ModelInferRequest {
        let input = InferInputTensor { contents: Some(contents), shape: vec![1; 8], ..InferInputTensor::default() };
        ModelInferRequest { model_name: "m".into(), inputs: vec![input], ..Default::default() }
    }

    #[test]
    fn accepts_ordinary_requests() {
        assert_eq!(check(&[]), Ok(()));
        let mut request =
            typed_request(InferTensorContents { fp32_contents: vec![1.5; 100_000], ..InferTensorContents::default() });
        request.raw_input_contents = vec![vec![7; 300].into(), vec![].into()];
        assert_eq!(check(&request.encode_to_vec()), Ok(()));
        let doubles = InferTensorContents { fp64_contents: vec![1.5; 100_000], ..InferTensorContents::default() };
        let pixels = InferTensorContents { uint_contents: vec![7; 1_000_000], ..InferTensorContents::default() };
        for contents in [doubles, pixels] {
            assert_eq!(check(&typed_request(contents).encode_to_vec()), Ok(()));
        }
        // Unpacked numbers, as older encoders write them: input { contents { fp32, fp32, .. } }.
        let numbers: Vec<u8> = [0x35, 0, 0, 0x80, 0x3f].repeat(50_000);
        assert_eq!(check(&nested(&[5, 5], &numbers)), Ok(()));
    }

    /// `inner` as the content of nested fields.
    fn nested(path: &[u8], inner: &[u8]) -> Vec<u8> {
        path.iter().rev().fold(inner.to_vec(), |inner, field| {
            let mut message = vec![field << 3 | 2];
            prost::encoding::encode_varint(inner.len() as u64, &mut message);
            [message, inner].concat()
        })
    }

    #[test]
    fn rejects_messages_that_expand() {
        let crowded =
            ModelInferRequest { inputs: vec![InferInputTensor::default(); 2 * MAX_FIELDS], ..Default::default() };
        assert!(check(&crowded.encode_to_vec()).unwrap_err().contains("fields"));
        let (byte_each, empty_each) = (vec![1; 1_000_000], [0x22, 0].repeat(500_000));
        for (field, message) in [
            ("shape", nested(&[5, 3], &byte_each)),
            ("int64_contents", nested(&[5, 5, 3], &byte_each)),
            ("uint64_contents", nested(&[5, 5, 5], &byte_each)),
            ("bytes_contents", nested(&[5, 5], &[0x42, 0].repeat(500_000))),
            ("parameters of an input", nested(&[5], &empty_each)),
            ("parameters of an output", nested(&[6], &[0x12, 0].repeat(500_000))),
        ] {
            assert!(check(&message).is_err(), "{field}");
        }
    }

    #[test]
    fn leaves_malformed_messages_to_decoder() {
        // Truncated, of unknown types, with an excessive length.
        for bytes in [&[0x80][..], &[0x0b, 0, 0], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f], &[0x09, 1], &[0xff; 11]] {
            assert_eq!(check(bytes), Ok(()), "{bytes:?}");
        }
    }
}
