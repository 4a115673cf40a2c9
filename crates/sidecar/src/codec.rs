//! Reading messages whose memory is in proportion to their length: two bytes can be a whole tensor,
//! and one can be a number of eight, at any depth. So what a message would take is counted before
//! anything is made of it.
use prost::Message;
use prost::bytes::Buf;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// Most fields of a message, numbers of a list not counted. There are a handful in a request.
const MAX_FIELDS: usize = 1024;
/// Bytes of memory that a message may take for each of its own: pixels of a byte are numbers of four.
const MAX_RATIO: usize = 4;
/// Bytes of memory that it may take beside that.
const FRAME_MEMORY: usize = 256 << 10;
/// Bytes of memory that a field takes that is no number of a list.
const FIELD_MEMORY: usize = 200;

/// A message as the reader finds it.
#[derive(Clone, Copy, PartialEq)]
enum Inside {
    /// Any request: of inference, or with fewer fields.
    Request,
    Input,
    Output,
    Contents,
    /// Name and value of a parameter.
    Entry,
    Parameter,
}

/// What a field holds that is delimited by its length.
enum Held {
    Message(Inside),
    /// Numbers of variable length, each of so many bytes in memory.
    Numbers(usize),
    /// Bytes as they are: text, data, numbers of a fixed length.
    Bytes,
}

impl Inside {
    /// What field `number` holds, by the protocol's file.
    fn holds(self, number: u64) -> Held {
        match (self, number) {
            (Self::Request, 4) | (Self::Input, 4) | (Self::Output, 2) => Held::Message(Self::Entry),
            (Self::Request, 5) => Held::Message(Self::Input),
            (Self::Request, 6) => Held::Message(Self::Output),
            (Self::Input, 5) => Held::Message(Self::Contents),
            (Self::Entry, 2) => Held::Message(Self::Parameter),
            (Self::Contents, 1) => Held::Numbers(1),
            (Self::Contents, 2 | 4) => Held::Numbers(4),
            (Self::Input, 3) | (Self::Contents, 3 | 5) => Held::Numbers(8),
            _ => Held::Bytes,
        }
    }

    /// Whether a field is one number of a list that is not packed.
    fn is_listed(self, number: u64) -> bool {
        self == Self::Contents && (1..=7).contains(&number)
    }
}

/// As [`ProstCodec`], with that limit.
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

/// The half that reads.
pub(crate) struct CountedDecoder<U>(ProstDecoder<U>);

impl<U: Message + Default> Decoder for CountedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // A message lies in one piece: it was gathered whole.
        check(bytes.chunk()).map_err(Status::invalid_argument)?;
        self.0.decode(bytes)
    }
}

/// What is left to a message.
struct Left {
    fields: usize,
    memory: usize,
}

/// Checks a message before it is decoded.
///
/// # Errors
/// It would take many times its length.
pub fn check(bytes: &[u8]) -> Result<(), String> {
    let memory = FRAME_MEMORY + MAX_RATIO * bytes.len();
    walk(bytes, Inside::Request, &mut Left { fields: MAX_FIELDS, memory })
}

/// Goes through a message up to where it is none: the reader refuses what is left.
fn walk(mut bytes: &[u8], inside: Inside, left: &mut Left) -> Result<(), String> {
    while let Some((key, rest)) = number(bytes) {
        let field = key >> 3;
        let (held, behind) = match key & 7 {
            0 => (None, number(rest).map(|(_, behind)| behind)),
            1 => (None, rest.get(8..)),
            2 => match delimited(rest) {
                Some((held, behind)) => (Some(held), Some(behind)),
                None => (None, None),
            },
            5 => (None, rest.get(4..)),
            // Groups are no part of this protocol's messages.
            _ => (None, None),
        };
        let Some(behind) = behind else { return Ok(()) };
        bytes = behind;
        if held.is_none() && inside.is_listed(field) {
            left.take(8)?;
            continue;
        }
        left.fields =
            left.fields.checked_sub(1).ok_or_else(|| format!("a message of more than {MAX_FIELDS} fields"))?;
        left.take(FIELD_MEMORY)?;
        match (held, inside.holds(field)) {
            // The table has no circle, so this is five deep at most.
            (Some(held), Held::Message(inner)) => walk(held, inner, left)?,
            // Each ends with a byte below 0x80.
            (Some(held), Held::Numbers(size)) => left.take(size * held.iter().filter(|byte| **byte < 0x80).count())?,
            (Some(held), Held::Bytes) => left.take(held.len())?,
            (None, _) => {}
        }
    }
    Ok(())
}

impl Left {
    fn take(&mut self, memory: usize) -> Result<(), String> {
        let left = self.memory.checked_sub(memory);
        self.memory = left.ok_or("a message that would take many times its length in memory")?;
        Ok(())
    }
}

/// What is in a field that says its length, and what is behind it.
fn delimited(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = number(bytes)?;
    rest.split_at_checked(usize::try_from(length).ok()?)
}

/// A number of variable length, and what is behind it.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let end = bytes.iter().take(10).position(|byte| byte & 0x80 == 0)?;
    let (own, rest) = bytes.split_at(end + 1);
    Some((own.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f)), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::proto::model_infer_request::InferInputTensor;
    use crate::grpc::proto::{InferTensorContents, ModelInferRequest};

    fn typed(contents: InferTensorContents) -> ModelInferRequest {
        let input = InferInputTensor { contents: Some(contents), shape: vec![1; 8], ..InferInputTensor::default() };
        ModelInferRequest { model_name: "m".into(), inputs: vec![input], ..Default::default() }
    }

    #[test]
    fn what_a_request_needs_is_taken() {
        assert_eq!(check(&[]), Ok(()));
        let mut request =
            typed(InferTensorContents { fp32_contents: vec![1.5; 100_000], ..InferTensorContents::default() });
        request.raw_input_contents = vec![vec![7; 300].into(), vec![].into()];
        assert_eq!(check(&request.encode_to_vec()), Ok(()));
        let doubles = InferTensorContents { fp64_contents: vec![1.5; 100_000], ..InferTensorContents::default() };
        let pixels = InferTensorContents { uint_contents: vec![7; 1_000_000], ..InferTensorContents::default() };
        for contents in [doubles, pixels] {
            assert_eq!(check(&typed(contents).encode_to_vec()), Ok(()));
        }
        // Numbers one by one, as older writers have them: input { contents { fp32, fp32, .. } }.
        let numbers: Vec<u8> = [0x35, 0, 0, 0x80, 0x3f].repeat(50_000);
        assert_eq!(check(&nested(&[5, 5], &numbers)), Ok(()));
    }

    /// `inner` as the content of fields in fields.
    fn nested(path: &[u8], inner: &[u8]) -> Vec<u8> {
        path.iter().rev().fold(inner.to_vec(), |inner, field| {
            let mut made = vec![field << 3 | 2];
            prost::encoding::encode_varint(inner.len() as u64, &mut made);
            [made, inner].concat()
        })
    }

    #[test]
    fn what_would_take_many_times_its_length_is_refused() {
        let many =
            ModelInferRequest { inputs: vec![InferInputTensor::default(); 2 * MAX_FIELDS], ..Default::default() };
        assert!(check(&many.encode_to_vec()).unwrap_err().contains("fields"));
        let (byte_each, empty_each) = (vec![1; 1_000_000], [0x22, 0].repeat(500_000));
        for (what, message) in [
            ("shape", nested(&[5, 3], &byte_each)),
            ("int64_contents", nested(&[5, 5, 3], &byte_each)),
            ("uint64_contents", nested(&[5, 5, 5], &byte_each)),
            ("bytes_contents", nested(&[5, 5], &[0x42, 0].repeat(500_000))),
            ("parameters of an input", nested(&[5], &empty_each)),
            ("parameters of an output", nested(&[6], &[0x12, 0].repeat(500_000))),
        ] {
            assert!(check(&message).is_err(), "{what}");
        }
    }

    #[test]
    fn what_is_no_message_is_left_to_the_reader() {
        // Cut short, of unknown kinds, longer than it is.
        for bytes in [&[0x80][..], &[0x0b, 0, 0], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f], &[0x09, 1], &[0xff; 11]] {
            assert_eq!(check(bytes), Ok(()), "{bytes:?}");
        }
    }
}
