//! Routing traces as safetensors files: one tensor `routing` `[tokens, layers, top_k]`, U8 or U16, and
//! metadata `routing` = `{"experts":128,"layers":48,"top_k":8}` for what the shape cannot say.
//!
//! The metadata has a single key, because the format does not fix the order of several, and the same trace
//! must give the same bytes. Numbers are little-endian.

use super::{Ids, RoutingTrace};
use crate::Error;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Name of the tensor and of the metadata key.
const NAME: &str = "routing";

#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Note {
    experts: usize,
    layers: usize,
    top_k: usize,
}

fn refuse<T>(message: String) -> Result<T, Error> {
    Err(Error::TraceFile(message))
}

impl RoutingTrace {
    /// Encodes the trace as the bytes of a safetensors file; equal traces give equal bytes.
    ///
    /// ```
    /// use lockstep_ops::routing::RoutingTrace;
    /// let trace = RoutingTrace::from_ids(&[0, 3, -1, -1], 2, 4, 1, 2)?;
    /// assert_eq!(RoutingTrace::from_safetensors(&trace.to_safetensors()?)?, trace);
    /// # Ok::<(), lockstep_ops::Error>(())
    /// ```
    pub fn to_safetensors(&self) -> Result<Vec<u8>, Error> {
        let shape = vec![self.tokens(), self.layers, self.top_k];
        let wrong = |error: safetensors::SafeTensorError| Error::TraceFile(error.to_string());
        let note = Note { experts: self.experts, layers: self.layers, top_k: self.top_k };
        let note = serde_json::to_string(&note).map_err(|error| Error::TraceFile(error.to_string()))?;
        let wide: Vec<u8>;
        let (dtype, bytes) = match &self.ids {
            Ids::U8(ids) => (Dtype::U8, ids.as_slice()),
            Ids::U16(ids) => {
                wide = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
                (Dtype::U16, wide.as_slice())
            }
        };
        let view = TensorView::new(dtype, shape, bytes).map_err(wrong)?;
        safetensors::serialize([(NAME, view)], Some(HashMap::from([(NAME.to_owned(), note)]))).map_err(wrong)
    }

    /// Reads the bytes of a safetensors file and validates the trace; other tensors are ignored.
    ///
    /// Errors: an incomplete or invalid safetensors file; metadata that are missing or invalid; a tensor that
    /// is missing, or whose type or shape does not match the metadata; the
    /// [`lockstep_core::routing::TraceFault`]s, with token, layer and entry.
    pub fn from_safetensors(bytes: &[u8]) -> Result<RoutingTrace, Error> {
        let whole =
            |error| Error::TraceFile(format!("{} bytes are not a safetensors file: {error}", bytes.len()));
        let file = SafeTensors::deserialize(bytes).map_err(whole)?;
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(whole)?;
        let Some(note) = header.metadata().as_ref().and_then(|metadata| metadata.get(NAME)) else {
            return refuse(format!(
                "metadata has no key `{NAME}`: expected {{\"experts\":E,\"layers\":L,\"top_k\":K}}"
            ));
        };
        let note: Note = serde_json::from_str(note)
            .map_err(|error| Error::TraceFile(format!("metadata `{NAME}` is {note}: {error}")))?;
        let mut trace = RoutingTrace::new(note.experts, note.layers, note.top_k)?;
        let Ok(view) = file.tensor(NAME) else {
            let mut names = file.names();
            names.sort_unstable();
            return refuse(format!("tensor `{NAME}` is missing; the file has: {}", names.join(", ")));
        };
        let expected = if matches!(trace.ids, Ids::U8(_)) { Dtype::U8 } else { Dtype::U16 };
        if view.dtype() != expected {
            let Note { experts, top_k, .. } = note;
            let got = view.dtype();
            return refuse(format!(
                "tensor `{NAME}` is {got:?}: expected {expected:?} for {experts} experts, top_k {top_k}"
            ));
        }
        let tokens = match *view.shape() {
            [tokens, layers, top_k] if (layers, top_k) == (note.layers, note.top_k) => tokens,
            _ => {
                let Note { layers, top_k, .. } = note;
                let got = view.shape();
                return refuse(format!(
                    "tensor `{NAME}` has shape {got:?}: expected [tokens, {layers}, {top_k}]"
                ));
            }
        };
        match &mut trace.ids {
            Ids::U8(ids) => ids.extend_from_slice(view.data()),
            Ids::U16(ids) => {
                ids.extend(view.data().as_chunks::<2>().0.iter().map(|b| u16::from_le_bytes(*b)))
            }
        }
        trace.view().validate(tokens, note.experts)?;
        Ok(trace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::routing::{Place, TraceFault};

    fn trace(experts: usize) -> RoutingTrace {
        let mut trace = RoutingTrace::new(experts, 3, 2).unwrap();
        trace.append_padding(4);
        trace.append_absent(1);
        trace
    }

    #[test]
    fn round_trip() {
        for (experts, dtype) in [(8, Dtype::U8), (256, Dtype::U8), (257, Dtype::U16), (65536, Dtype::U16)] {
            let bytes = trace(experts).to_safetensors().unwrap();
            assert_eq!(RoutingTrace::from_safetensors(&bytes).unwrap(), trace(experts));
            assert_eq!(bytes, trace(experts).to_safetensors().unwrap(), "the same trace is the same file");
            let file = SafeTensors::deserialize(&bytes).unwrap();
            let view = file.tensor("routing").unwrap();
            assert_eq!((view.dtype(), view.shape()), (dtype, &[5, 3, 2][..]));
            for cut in 0..bytes.len() {
                assert!(RoutingTrace::from_safetensors(&bytes[..cut]).is_err(), "{cut}");
            }
        }
        let none = RoutingTrace::new(8, 3, 2).unwrap();
        assert_eq!(RoutingTrace::from_safetensors(&none.to_safetensors().unwrap()).unwrap(), none);
    }

    #[test]
    fn a_trace_stitched_of_partial_rollouts_is_read() {
        // The rollout was interrupted after 2 of 5 tokens and resumed elsewhere. Neither part has a row for
        // its last token, and the second starts with the token that the first did not feed.
        let ids = [0, 1, 2, 3, 4, 5, 6, 7, 1, 0, 3, 2, 5, 4, 7, 6];
        let first = RoutingTrace::from_ids(&ids[..8], 2, 8, 2, 2).unwrap();
        let second = RoutingTrace::from_ids(&ids[8..], 2, 8, 2, 2).unwrap();
        let mut whole = RoutingTrace::new(8, 2, 2).unwrap();
        for part in [&first, &second] {
            let read = RoutingTrace::from_safetensors(&part.to_safetensors().unwrap()).unwrap();
            whole.stitch(&read, 0..2).unwrap();
        }
        whole.append_absent(1);
        let read = RoutingTrace::from_safetensors(&whole.to_safetensors().unwrap()).unwrap();
        assert_eq!(read, whole);
        assert_eq!((read.tokens(), read.view().validate(5, 8)), (5, Ok(8)));
    }

    fn file(dtype: Dtype, shape: &[usize], bytes: &[u8], name: &str, note: Option<&str>) -> String {
        let view = TensorView::new(dtype, shape.to_vec(), bytes).unwrap();
        let note = note.map(|note| HashMap::from([("routing".to_owned(), note.to_owned())]));
        let bytes = safetensors::serialize([(name, view)], note).unwrap();
        RoutingTrace::from_safetensors(&bytes).unwrap_err().to_string()
    }

    #[test]
    fn every_fault_has_its_error() {
        let written = "{\"experts\":8,\"layers\":1,\"top_k\":2}";
        let note = Some(written);
        let (u8, u16) = (Dtype::U8, Dtype::U16);
        for (found, expected) in [
            (file(u8, &[1, 1, 2], &[0, 1], "routing", None), "metadata has no key `routing`"),
            (file(u8, &[1, 1, 2], &[0, 1], "routing", Some("8 experts")), "metadata `routing` is 8 experts"),
            (
                file(u8, &[1, 1, 2], &[0, 1], "routing", Some("{\"experts\":8,\"layers\":1}")),
                "missing field `top_k`",
            ),
            (
                file(u8, &[1, 1, 2], &[0, 1], "routing", Some("{\"experts\":1,\"layers\":1,\"top_k\":2}")),
                "`top_k` is 2",
            ),
            (
                file(u8, &[1, 1, 2], &[0, 1], "routes", note),
                "tensor `routing` is missing; the file has: routes",
            ),
            (
                file(u16, &[1, 1, 2], &[0, 0, 1, 0], "routing", note),
                "is U16: expected U8 for 8 experts, top_k 2",
            ),
            (file(Dtype::I8, &[1, 1, 2], &[0, 1], "routing", note), "is I8: expected U8"),
            (file(u8, &[1, 2], &[0, 1], "routing", note), "shape [1, 2]: expected [tokens, 1, 2]"),
            (file(u8, &[1, 2, 1], &[0, 1], "routing", note), "shape [1, 2, 1]: expected [tokens, 1, 2]"),
            (file(u8, &[1, 1, 2], &[0, 8], "routing", note), "`trace`[0, 0, 1] is 8"),
            (file(u8, &[1, 1, 2], &[3, 255], "routing", note), "`trace`[0, 0, 1] is missing"),
            (file(u8, &[1, 1, 2], &[3, 3], "routing", note), "`trace`[0, 0, 1] is 3, the same as entry 0"),
        ] {
            assert!(found.contains(expected), "{found}\nexpected {expected}");
        }
        let place = Place { token: 0, layer: 0, entry: 1 };
        let view = TensorView::new(u8, vec![1, 1, 2], &[3, 9]).unwrap();
        let note = HashMap::from([("routing".to_owned(), written.to_owned())]);
        let bytes = safetensors::serialize([("routing", view)], Some(note)).unwrap();
        let found = RoutingTrace::from_safetensors(&bytes).unwrap_err();
        assert!(matches!(found, Error::Trace(TraceFault::Range { place: p, .. }) if p == place));
    }
}
