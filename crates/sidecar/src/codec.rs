//! Reading messages whose memory is in proportion to their length: two bytes can be a whole tensor, so the
//! fields of a message are counted before anything is made of them.
use prost::Message;
use prost::bytes::Buf;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// Most fields of a message, those inside of its fields not counted. Such as need memory beside their bytes
/// there are a handful of in a request.
const MAX_FIELDS: usize = 1024;

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
        if fields(bytes.chunk()) > MAX_FIELDS {
            return Err(Status::invalid_argument(format!("a message of more than {MAX_FIELDS} fields")));
        }
        self.0.decode(bytes)
    }
}

/// Counts the fields of a message up to where it is none, or there are too many.
fn fields(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while count <= MAX_FIELDS
        && let Some(rest) = behind_field(bytes)
    {
        bytes = rest;
        count += 1;
    }
    count
}

fn behind_field(bytes: &[u8]) -> Option<&[u8]> {
    let (key, rest) = number(bytes)?;
    match key & 7 {
        0 => Some(number(rest)?.1),
        1 => rest.get(8..),
        2 => {
            let (length, rest) = number(rest)?;
            rest.get(usize::try_from(length).ok()?..)
        }
        5 => rest.get(4..),
        // Groups are no part of this protocol's messages; the reader skips or refuses what is left.
        _ => None,
    }
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

    #[test]
    fn fields_are_counted_and_what_is_in_them_is_not() {
        assert_eq!(fields(&[]), 0);
        let contents = InferTensorContents { fp32_contents: vec![1.5; 10_000], ..InferTensorContents::default() };
        let input = InferInputTensor { contents: Some(contents), shape: vec![1; 50], ..InferInputTensor::default() };
        let mut request = ModelInferRequest { model_name: "m".into(), inputs: vec![input], ..Default::default() };
        request.raw_input_contents = vec![vec![7; 300].into(), vec![].into()];
        assert_eq!(fields(&request.encode_to_vec()), 4);
        request.inputs = vec![InferInputTensor::default(); 2 * MAX_FIELDS];
        assert!(fields(&request.encode_to_vec()) > MAX_FIELDS);
        // Cut short, of unknown kinds, longer than it is.
        for bytes in [&[0x80][..], &[0x0b, 0, 0], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f], &[0x09, 1], &[0xff; 11]] {
            assert_eq!(fields(bytes), 0, "{bytes:?}");
        }
    }
}
