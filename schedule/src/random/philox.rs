//! Philox4x32-10, a counter-based generator.
//!
//! **Formula** (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), ten rounds on (c₀,
//! c₁, c₂, c₃) with key (k₀, k₁):
//!
//! ```text
//! (hi₀, lo₀) = M0·c₀,  (hi₁, lo₁) = M1·c₂,  c ← (hi₁ ⊕ c₁ ⊕ k₀, lo₁, hi₀ ⊕ c₃ ⊕ k₁, lo₀)
//! between rounds: k ← (k₀ + W0, k₁ + W1)
//! ```
//!
//! **Accuracy**: integers only; the known answers of the Random123 distribution (test below).

const M: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const W: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];

fn wide(a: u32, b: u32) -> (u32, u32) {
    let product = u64::from(a) * u64::from(b);
    ((product >> 32) as u32, product as u32)
}

/// Returns 128 random bits for a counter and a key.
pub fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let (mut c, mut k) = (counter, key);
    for _ in 0..10 {
        let ((hi0, lo0), (hi1, lo1)) = (wide(M[0], c[0]), wide(M[1], c[2]));
        c = [hi1 ^ c[1] ^ k[0], lo1, hi0 ^ c[3] ^ k[1], lo0];
        k = [k[0].wrapping_add(W[0]), k[1].wrapping_add(W[1])];
    }
    c
}

#[cfg(test)]
mod tests {
    use super::philox4x32_10;

    #[test]
    fn known_answers_of_random123() {
        let cases = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, answer) in cases {
            assert_eq!(philox4x32_10(counter, key), answer);
        }
    }
}
