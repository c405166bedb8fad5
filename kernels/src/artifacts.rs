//! The built artifacts, embedded in the crate: the PTX compressed, by `build.rs`.

use std::string::String;

/// The PTX's header, and the name and zlib stream of each entry point's part. The header and all parts, one
/// after the other, are the file.
const PTX: (&str, &[(&str, &[u8])]) = include!(concat!(env!("OUT_DIR"), "/ptx.rs"));

/// The start of every PTX module: for sm_80, which the driver compiles for all later architectures.
pub const PTX_HEADER: &str = PTX.0;

/// Returns the PTX of an entry point: a module, with [`PTX_HEADER`] in front of it. `None` if there is no
/// such entry point, or if what this program has of it is damaged.
pub fn ptx(entry: &str) -> Option<String> {
    PTX.1.iter().find(|(name, _)| *name == entry).and_then(|(_, part)| inflate(part))
}

/// Returns the text of a zlib stream, whose checksum is the text's.
fn inflate(part: &[u8]) -> Option<String> {
    String::from_utf8(miniz_oxide::inflate::decompress_to_vec_zlib(part).ok()?).ok()
}

/// HSA code object for gfx942.
pub const GFX942: &[u8] = include_bytes!("../artifacts/lockstep.gfx942.co");

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::ToOwned;

    #[test]
    fn header_and_parts_are_the_file() {
        let mut text = PTX_HEADER.to_owned();
        for (name, _) in PTX.1 {
            text.push_str(&ptx(name).expect(name));
        }
        // assert_eq! would print both.
        assert!(text == include_str!("../artifacts/lockstep.ptx"));
        assert_eq!(ptx("no_such_entry"), None);
    }

    #[test]
    fn a_damaged_part_is_absent() {
        let (_, part) = PTX.1.iter().min_by_key(|(_, part)| part.len()).expect("an entry point");
        let good = inflate(part);
        assert!(good.is_some());
        let mut absent = 0;
        for at in 0..part.len() {
            assert_eq!(inflate(&part[..at]), None, "cut at {at}");
            let mut bad = part.to_vec();
            bad[at] ^= 0xff;
            // Another distance may copy the same text.
            let text = inflate(&bad);
            assert!(text.is_none() || text == good, "byte {at}");
            absent += usize::from(text.is_none());
        }
        assert!(absent > part.len() / 2, "{absent} of {}", part.len());
    }
}
