//! What a launch did: instructions, and the memory traffic for what it requested.

use std::ops::AddAssign;

/// Sector sizes of memory traffic, in bytes.
pub const SECTORS: [u64; 3] = [32, 64, 128];

/// Counts of one launch, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instructions of teams: one for all lanes together.
    pub instructions: u64,
    /// Instructions times the lanes that were active.
    pub lane_instructions: u64,
    /// Loads and stores of global memory: one for all lanes together.
    pub requests: u64,
    /// Bytes that lanes requested. A byte that two lanes request counts twice.
    pub bytes_requested: u64,
    /// Bytes moved if memory moves in whole sectors of 32, 64 and 128 bytes, for each request separately.
    pub bytes_moved: [u64; SECTORS.len()],
    /// The most instructions of one team.
    pub longest: u64,
}

impl Counts {
    /// Adds one request: first byte and size of each active lane's access.
    pub fn request(&mut self, accesses: impl Iterator<Item = (u64, u32)> + Clone) {
        self.requests += 1;
        let mut bytes = 0;
        for (_, size) in accesses.clone() {
            bytes += u64::from(size);
        }
        self.bytes_requested += bytes;
        for (moved, sector) in self.bytes_moved.iter_mut().zip(SECTORS) {
            *moved += sector * touched(accesses.clone(), sector);
        }
    }

    /// Returns bytes requested over bytes moved in sectors of `SECTORS[which]` bytes: 1 is perfect
    /// coalescing, more than 1 means sharing.
    pub fn efficiency(&self, which: usize) -> f64 {
        if self.bytes_moved[which] == 0 {
            1.0
        } else {
            self.bytes_requested as f64 / self.bytes_moved[which] as f64
        }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.instructions += other.instructions;
        self.lane_instructions += other.lane_instructions;
        self.requests += other.requests;
        self.bytes_requested += other.bytes_requested;
        for (mine, theirs) in self.bytes_moved.iter_mut().zip(other.bytes_moved) {
            *mine += theirs;
        }
        self.longest = self.longest.max(other.longest);
    }
}

/// Counts the distinct sectors that the accesses touch. At most 64 lanes of 16 bytes: two sectors per lane.
fn touched(accesses: impl Iterator<Item = (u64, u32)>, sector: u64) -> u64 {
    let mut seen = [0; 128];
    let mut count = 0;
    for (address, size) in accesses {
        let (first, last) = (address / sector, (address + u64::from(size.max(1)) - 1) / sector);
        for at in first..=last {
            // Adjacent lanes mostly share a sector.
            if !seen[..count].iter().rev().any(|s| *s == at) {
                seen[count] = at;
                count += 1;
            }
        }
    }
    count as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warp_of_neighbours_moves_what_it_asks_for() {
        let mut counts = Counts::default();
        counts.request((0..32).map(|lane| (0x1000 + lane * 4, 4)));
        assert_eq!((counts.bytes_requested, counts.bytes_moved), (128, [128, 128, 128]));
        assert_eq!(counts.efficiency(0), 1.0);
    }

    #[test]
    fn the_longest_of_two_launches_is_that_of_one() {
        let mut counts = Counts { instructions: 9, longest: 5, ..Counts::default() };
        counts += Counts { instructions: 8, longest: 7, ..Counts::default() };
        assert_eq!((counts.instructions, counts.longest), (17, 7));
    }

    #[test]
    fn strides_and_odd_starts_move_more() {
        let mut counts = Counts::default();
        counts.request((0..32).map(|lane| (lane * 128, 4)));
        assert_eq!(counts.bytes_moved, [32 * 32, 32 * 64, 32 * 128]);
        let mut counts = Counts::default();
        counts.request((0..32).map(|lane| (4 + lane * 4, 4)));
        assert_eq!(counts.bytes_moved, [160, 192, 256]);
        let mut counts = Counts::default();
        counts.request((0..32).map(|_| (64, 8)));
        assert_eq!((counts.bytes_requested, counts.bytes_moved), (256, [32, 64, 128]));
    }
}
