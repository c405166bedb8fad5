//! The embedded kernels: PTX text, which the driver compiles for its device.

use lockstep_gpu::{Error, Version};
use lockstep_kernels::artifacts::{ptx, ptx_header};

/// The oldest architecture that the PTX supports.
pub(crate) const NEEDED: &str = "sm_80 or later";

/// Returns whether the PTX runs on this architecture; the error is what it needs.
pub(crate) fn supports(arch: &str) -> Result<(), &'static str> {
    let number = arch.strip_prefix("sm_").and_then(|number| number.parse().ok());
    number.filter(|number: &u32| *number >= 80).map(|_| ()).ok_or(NEEDED)
}

/// Returns the PTX of an entry point, with the NUL terminator that the driver expects; the header alone, in
/// which the driver will not find it, if there is no such entry point or it is damaged. The driver compiles
/// what it is given: seconds for all of them.
pub(crate) fn image(entry: &str) -> Vec<u8> {
    [ptx_header(), &ptx(entry).unwrap_or_default(), "\0"].concat().into_bytes()
}

/// Returns the CUDA version that a driver needs to read the embedded PTX.
pub(crate) fn needed() -> Result<Version, Error> {
    cuda_for_ptx(ptx_header())
        .ok_or(Error::NoKernels { api: "CUDA", artifact: "kernels/artifacts/lockstep.ptx" })
}

/// Returns the first CUDA version that reads a PTX text, from its `.version` line (table "PTX Release
/// History" of NVIDIA's PTX manual).
fn cuda_for_ptx(ptx: &str) -> Option<Version> {
    let line = ptx.lines().find_map(|line| line.trim().strip_prefix(".version"))?;
    let (major, minor) = line.trim().split_once('.')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    Some(match (major, minor) {
        (..=6, _) => Version::new(11, 0),
        // 7.n came with 11.n, and 7.8 with 11.8.
        (7, minor) => Version::new(11, minor),
        // 8.0 to 8.5 came with 12.0 to 12.5, 8.6 with 12.7, 8.7 with 12.8, 8.8 with 12.9.
        (8, minor @ ..=5) => Version::new(12, minor),
        (8, minor) => Version::new(12, minor + 1),
        // 9.n came with 13.n. Later versions are not known here: the driver will report.
        (9, minor) => Version::new(13, minor),
        (major, minor) => Version::new(major + 4, minor),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::op::{OPS, OpInfo};

    #[test]
    fn the_version_line_says_which_driver_is_needed() {
        let needs = |line: &str| cuda_for_ptx(&format!("//\n\n{line}\n.target sm_80\n"));
        assert_eq!(needs(".version 7.0"), Some(Version::new(11, 0)));
        assert_eq!(needs(".version 7.8"), Some(Version::new(11, 8)));
        assert_eq!(needs(".version 8.5"), Some(Version::new(12, 5)));
        assert_eq!(needs(".version 8.6"), Some(Version::new(12, 7)));
        assert_eq!(needs(".version 8.8"), Some(Version::new(12, 9)));
        assert_eq!(needs(".version 9.1"), Some(Version::new(13, 1)));
        assert_eq!(needs(""), None);
        assert_eq!(needs(".version x"), None);
    }

    #[test]
    fn the_images_of_all_entry_points_are_the_whole_file() {
        let file = include_str!("../../kernels/artifacts/lockstep.ptx");
        let header = file.split("\t// .globl\t").next().expect("a header");
        assert!(header.contains(".version") && header.contains(".address_size"));
        let mut bytes = header.len();
        for entry in OPS.iter().flat_map(OpInfo::all_entries) {
            let image = String::from_utf8(image(entry)).expect("ASCII");
            let body = image.strip_prefix(header).and_then(|rest| rest.strip_suffix('\0')).expect(entry);
            assert!(body.matches(".entry ").count() == 1 && body.contains(&format!(".entry {entry}(")));
            assert!(file.contains(body), "{entry}");
            bytes += body.len();
        }
        assert_eq!(bytes, file.len());
        assert_eq!(image("no_such_entry"), [header.as_bytes(), &[0]].concat());
    }

    #[test]
    fn older_than_sm_80_is_refused() {
        assert_eq!(supports("sm_75"), Err(NEEDED));
        assert_eq!(supports("gfx942"), Err(NEEDED));
        assert_eq!(["sm_80", "sm_90", "sm_100", "sm_120"].map(supports), [Ok(()); 4]);
    }
}
