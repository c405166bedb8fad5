//! The kernel descriptor: a wave's initial state and mode.

/// The implemented parts of a descriptor, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Vector registers that the kernel may name.
    pub vgprs: u32,
    /// Scalar registers that it may name, without VCC and those that the hardware keeps after it.
    pub sgprs: u32,
    /// Whether s0 and s1 hold the address of the arguments.
    pub kernarg: bool,
    /// Which workgroup indices follow in scalar registers: x, y, z.
    pub workgroup: [bool; 3],
    /// The last dimension of the thread index in v0: x (0), y (1), z (2).
    pub workitem: u32,
    /// Whether `clamp` turns NaN into 0.
    pub dx10_clamp: bool,
    /// Whether minimum and maximum quiet signalling NaNs.
    pub ieee: bool,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    match bytes.get(at..at + 4) {
        Some(&[a, b, c, d]) => u32::from_le_bytes([a, b, c, d]),
        _ => 0,
    }
}

impl Descriptor {
    /// Returns the offset from the descriptor to the code.
    pub(super) fn entry(bytes: &[u8]) -> i64 {
        (u64::from(word(bytes, 16)) | u64::from(word(bytes, 20)) << 32).cast_signed()
    }

    /// Reads its 64 bytes; an error names a requested feature that is not implemented.
    pub fn read(bytes: &[u8]) -> Result<Descriptor, String> {
        let [lds, scratch, rsrc3, rsrc1, rsrc2, properties] =
            [0, 4, 44, 48, 52, 56].map(|at| word(bytes, at));
        let bits = |word: u32, from: u32, count: u32| word >> from & ((1 << count) - 1);
        let properties_alone = properties & 0xffff;
        let refused = [
            (lds != 0 || bits(rsrc2, 15, 9) != 0, "local memory"),
            (scratch != 0 || bits(rsrc2, 0, 1) != 0, "private memory"),
            (properties >> 16 != 0, "preloaded arguments"),
            (
                properties_alone & !0x8 != 0,
                "user registers besides the arguments' address, waves of 32, or a dynamic stack",
            ),
            (bits(rsrc2, 10, 1) != 0, "workgroup info"),
            (bits(rsrc2, 13, 2) != 0 || bits(rsrc2, 24, 7) != 0, "exceptions"),
            (bits(rsrc1, 12, 4) != 0, "rounding other than to nearest"),
            (bits(rsrc1, 16, 4) != 0xf, "flushed denormals"),
            (
                bits(rsrc1, 10, 2) != 0 || bits(rsrc1, 20, 1) != 0 || bits(rsrc1, 22, 1) != 0,
                "priority, privilege or debug mode",
            ),
            (bits(rsrc2, 11, 2) == 3, "workitem id 3"),
        ];
        if let Some((_, what)) = refused.iter().find(|(is, _)| *is) {
            return Err((*what).to_owned());
        }
        let kernarg = bits(properties, 3, 1) == 1;
        if bits(rsrc2, 1, 5) != 2 * u32::from(kernarg) {
            return Err(format!("{} user registers", bits(rsrc2, 1, 5)));
        }
        // Vector registers come in granules of 8, and accumulation registers begin at a multiple of 4; scalar
        // ones come in granules of 16 in steps of 8, six of which are VCC and the hardware's.
        let vgprs = ((bits(rsrc1, 0, 6) + 1) * 8).min((bits(rsrc3, 0, 6) + 1) * 4).min(256);
        let sgprs = (bits(rsrc1, 6, 4) / 2 + 1) * 16 - 6;
        Ok(Descriptor {
            vgprs,
            sgprs: sgprs.min(102),
            kernarg,
            workgroup: [7, 8, 9].map(|bit| bits(rsrc2, bit, 1) == 1),
            workitem: bits(rsrc2, 11, 2),
            dx10_clamp: bits(rsrc1, 21, 1) == 1,
            ieee: bits(rsrc1, 23, 1) == 1,
        })
    }
}
