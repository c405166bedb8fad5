//! The built artifacts, embedded in the crate: the PTX compressed, by `cargo xtask artifacts` (its format:
//! xtask/src/packed.rs).

use ruzstd::decoding::FrameDecoder;
use std::string::String;
use std::sync::{Mutex, PoisonError};
use std::vec::Vec;

/// The PTX.
const PACKED: &[u8] = include_bytes!("../artifacts/lockstep.ptx.zst");

/// What stands in front of an entry point, and then its name.
const START: &str = "\t// .globl\t";

/// The index, the header and the frames.
fn unpacked(packed: &[u8]) -> Option<(&str, &str, &[u8])> {
    let text = packed.iter().position(|byte| *byte == 0)?;
    let (index, header) = std::str::from_utf8(&packed[..text]).ok()?.split_once("\n\n")?;
    Some((index, header, &packed[text + 1..]))
}

/// The start of every PTX module: for sm_80, which the driver compiles for all later architectures.
pub fn ptx_header() -> &'static str {
    unpacked(PACKED).map_or("", |(_, header, _)| header)
}

/// Returns the PTX of an entry point: a module, with [`ptx_header`] in front of it. `None` if there is no
/// such entry point, or if what this program has of it is damaged.
pub fn ptx(entry: &str) -> Option<String> {
    let (index, _, frames) = unpacked(PACKED)?;
    let line = index.lines().find_map(|line| line.strip_prefix(entry)?.strip_prefix(' '))?;
    let (offset, length) = line.split_once(' ')?;
    let frame = frames.get(offset.parse().ok()?..)?.get(..length.parse().ok()?)?;
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.0 != offset {
        *last = (offset, decompressed(frame)?);
    }
    let part = last.1.split(START).find(|part| part.lines().next() == Some(entry))?;
    Some([START, part].concat())
}

/// The place and the text of the op that was read last: its entry points are loaded one after the other.
static LAST: Mutex<(&str, String)> = Mutex::new(("", String::new()));

/// Returns the text of a zstd frame with a checksum, which is the text's.
fn decompressed(mut frame: &[u8]) -> Option<String> {
    let mut decoder = FrameDecoder::new();
    decoder.init(&mut frame).ok()?;
    // The size is the frame's word; a damaged one could name any.
    let size = usize::try_from(decoder.content_size()).ok().filter(|size| *size <= MOST)?;
    decoder.decode_blocks(&mut frame, ruzstd::decoding::BlockDecodingStrategy::All).ok()?;
    let text: Vec<u8> = decoder.collect()?;
    let checked = decoder.get_checksum_from_data()? == decoder.get_calculated_checksum()?;
    (checked && text.len() == size).then(|| String::from_utf8(text).ok()).flatten()
}

/// More bytes than the entry points of any op have.
const MOST: usize = 1 << 26;

/// HSA code object for gfx942.
pub const GFX942: &[u8] = include_bytes!("../artifacts/lockstep.gfx942.co");

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::ToOwned;

    #[test]
    fn header_and_parts_are_the_file() {
        let (index, header, _) = unpacked(PACKED).expect("an index");
        let mut text = header.to_owned();
        for name in index.lines().filter_map(|line| line.split(' ').next()) {
            text.push_str(&ptx(name).expect(name));
        }
        // assert_eq! would print both.
        assert!(text == include_str!("../artifacts/lockstep.ptx"));
        for other in ["no_such_entry", "ga", "gae ", ""] {
            assert_eq!(ptx(other), None, "{other}");
        }
    }

    #[test]
    fn a_damaged_part_is_absent() {
        let (index, _, frames) = unpacked(PACKED).expect("an index");
        let number = |line: &str, at: usize| line.split(' ').nth(at).and_then(|n| n.parse::<usize>().ok());
        let places = index.lines().filter_map(|line| Some((number(line, 1)?, number(line, 2)?)));
        let (offset, length) = places.min_by_key(|(_, length)| *length).expect("an entry point");
        let part = &frames[offset..offset + length];
        let good = decompressed(part);
        assert!(good.is_some());
        let mut absent = 0;
        for at in 0..part.len() {
            assert_eq!(decompressed(&part[..at]), None, "cut at {at}");
            let mut bad = part.to_vec();
            bad[at] ^= 0xff;
            // Another distance may copy the same text.
            let text = decompressed(&bad);
            assert!(text.is_none() || text == good, "byte {at}");
            absent += usize::from(text.is_none());
        }
        assert!(absent > part.len() / 2, "{absent} of {}", part.len());
        assert!(unpacked(&PACKED[..100]).is_none() && unpacked(&[]).is_none());
    }
}
