//! The embedded kernels: an HSA code object for gfx942.

use lockstep_gpu::{Error, Version};
use lockstep_kernels::artifacts::GFX942;

/// The architecture that the code object targets.
pub(crate) const NEEDED: &str = "gfx942";

/// Returns whether the code object runs on this architecture; the error is what it needs.
pub(crate) fn supports(arch: &str) -> Result<(), &'static str> {
    if arch == NEEDED { Ok(()) } else { Err(NEEDED) }
}

/// Returns the code object, page-aligned, as the runtime would map it from a file. It is static because the
/// runtime may read it for as long as the module is loaded.
pub(crate) fn image() -> &'static [u8] {
    #[repr(C, align(4096))]
    struct Page<T>(T);
    static IMAGE: Page<[u8; GFX942.len()]> = Page(match GFX942.first_chunk() {
        Some(bytes) => *bytes,
        None => unreachable!(),
    });
    &IMAGE.0
}

/// Returns the HIP version that the embedded code object needs.
pub(crate) fn needed() -> Result<Version, Error> {
    hip_for_object(GFX942)
        .ok_or(Error::NoKernels { api: "HIP", artifact: "kernels/artifacts/lockstep.gfx942.co" })
}

/// Returns the first HIP version that loads a code object, from the ABI version in its ELF header. gfx942
/// itself came with 6.0.
fn hip_for_object(object: &[u8]) -> Option<Version> {
    const ABI_VERSION: usize = 8;
    if !object.starts_with(b"\x7fELF") {
        return None;
    }
    Some(match *object.get(ABI_VERSION)? {
        // Code object versions 2 to 5.
        0..=3 => Version::new(6, 0),
        // 6, which hip_code_object.cpp of 6.2 refuses.
        _ => Version::new(6, 3),
    })
}

/// Returns the architecture in a `hipDeviceProp_t`, without features: `gfx942` of `gfx942:sramecc+:xnack-`.
///
/// The structure changed with ROCm 6 (`gcnArchName` moved from byte 396 to byte 1160) and may change again;
/// but the name is the only text in it that starts with `gfx` after the 256 bytes of the device's own name.
pub(crate) fn arch(properties: &[u8]) -> String {
    let text = properties.get(256..).unwrap_or(&[]);
    let start = text.windows(3).position(|bytes| bytes == b"gfx").unwrap_or(text.len());
    let arch: String = text[start..]
        .iter()
        .take_while(|byte| byte.is_ascii_alphanumeric())
        .map(|byte| char::from(*byte))
        .collect();
    if arch.is_empty() { "unknown".to_owned() } else { arch }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_says_which_runtime_is_needed() {
        let elf = |abi: u8| [b"\x7fELF\x02\x01\x01\x40", &[abi][..], &[0; 7]].concat();
        assert_eq!(hip_for_object(&elf(3)), Some(Version::new(6, 0)));
        assert_eq!(hip_for_object(&elf(4)), Some(Version::new(6, 3)));
        assert_eq!(hip_for_object(b""), None);
        assert_eq!(hip_for_object(b"\x7fELF"), None);
    }

    #[test]
    fn the_architecture_is_found_in_both_layouts() {
        for at in [396, 1160] {
            let mut properties = vec![0; 2048];
            properties[..6].copy_from_slice(b"gfx000");
            properties[at..at + 22].copy_from_slice(b"gfx942:sramecc+:xnack-");
            assert_eq!(arch(&properties), "gfx942");
        }
        assert_eq!(arch(&[0; 2048]), "unknown");
        assert_eq!(arch(&[]), "unknown");
    }

    #[test]
    fn only_gfx942_will_do() {
        assert_eq!(supports("gfx942"), Ok(()));
        assert_eq!(["gfx90a", "gfx950", "sm_90", ""].map(supports), [Err(NEEDED); 4]);
    }

    #[test]
    fn the_image_is_the_artifact_on_a_page() {
        assert_eq!(image(), GFX942);
        assert_eq!(image().as_ptr().addr() % 4096, 0);
    }
}
