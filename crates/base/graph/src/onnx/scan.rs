//! A scan of the wire format before decoding. Decoding turns two bytes of an empty message into a
//! hundred bytes of memory, so the number of fields is bounded first.

use crate::GraphError;

/// Largest number of protobuf fields in one file (real networks have some ten per node).
pub const MAX_FIELDS: usize = 2_000_000;

/// Messages whose fields are visited: `(message, field number, message inside)`, where 0 is the
/// model.
const INNER: &[(u8, u64, u8)] = &[
    (0, 7, 1),  // model.graph
    (0, 8, 9),  // model.opset_import
    (1, 1, 2),  // graph.node
    (1, 5, 4),  // graph.initializer
    (1, 11, 5), // graph.input
    (1, 12, 5), // graph.output
    (2, 5, 3),  // node.attribute
    (3, 5, 4),  // attribute.t
    (4, 13, 9), // tensor.external_data
    (5, 2, 6),  // value.type
    (6, 1, 7),  // type.tensor_type
    (7, 2, 8),  // tensor_type.shape
    (8, 1, 9),  // shape.dim
];

/// Counts the fields of the messages that would be decoded.
///
/// # Errors
/// If the wire format is broken, or there are more than [`MAX_FIELDS`].
pub fn check(bytes: &[u8]) -> Result<(), GraphError> {
    let mut budget = MAX_FIELDS;
    message(bytes, 0, &mut budget)
}

fn broken_file_error() -> GraphError {
    GraphError::OnnxFile { what: "this is not an ONNX file, or it is truncated (broken protobuf)".into() }
}

fn message(mut bytes: &[u8], kind: u8, budget: &mut usize) -> Result<(), GraphError> {
    while !bytes.is_empty() {
        *budget = budget.checked_sub(1).ok_or_else(|| GraphError::OnnxFile {
            what: format!("more than {MAX_FIELDS} protobuf fields: no network needs that many"),
        })?;
        let key = varint(&mut bytes)?;
        let (field, wire) = (key >> 3, key & 7);
        match wire {
            0 => {
                varint(&mut bytes)?;
            }
            1 => bytes = bytes.get(8..).ok_or_else(broken_file_error)?,
            5 => bytes = bytes.get(4..).ok_or_else(broken_file_error)?,
            2 => {
                let len = usize::try_from(varint(&mut bytes)?).map_err(|_| broken_file_error())?;
                let inner = bytes.get(..len).ok_or_else(broken_file_error)?;
                bytes = &bytes[len..];
                if let Some(&(_, _, inside)) = INNER.iter().find(|(k, f, _)| *k == kind && *f == field) {
                    // The table has no cycle, so the depth is bounded by its longest path.
                    message(inner, inside, budget)?;
                }
            }
            _ => return Err(broken_file_error()),
        }
    }
    Ok(())
}

fn varint(bytes: &mut &[u8]) -> Result<u64, GraphError> {
    let mut value = 0u64;
    for (i, &b) in bytes.iter().take(10).enumerate() {
        value |= u64::from(b & 0x7f) << (7 * i);
        if b & 0x80 == 0 {
            *bytes = &bytes[i + 1..];
            return Ok(value);
        }
    }
    Err(broken_file_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_empty_messages_is_refused() {
        // graph { node {} node {} ... }: two bytes each.
        let nodes = [0x0A, 0x00].repeat(MAX_FIELDS + 10);
        let mut model = vec![0x3A];
        let mut len = nodes.len();
        while len >= 0x80 {
            model.push((len & 0x7f) as u8 | 0x80);
            len >>= 7;
        }
        model.push(len as u8);
        model.extend(nodes);
        assert!(check(&model).unwrap_err().to_string().contains("fields"));
    }

    #[test]
    fn text_is_not_onnx() {
        assert!(check(b"hello, this is text").is_err());
        assert!(check(&[0x3A, 0xFF, 0xFF]).is_err());
    }
}
