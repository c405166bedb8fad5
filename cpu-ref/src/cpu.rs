//! A CPU with a chosen SIMD level and number of threads.

use crate::nth::{self, Band};
use crate::{Compiled, SimdLevel, Unavailable, plain, threads};
use lockstep_core::op::{DisjointRows, Kernel};
use std::ops::Range;
use std::sync::Arc;

/// Runs some rows of a kernel on the calling thread.
pub(crate) type Rows<K> = fn(&Cpu, &K, Range<usize>);

/// Runs kernels on this machine's CPU.
#[derive(Clone, Debug)]
pub struct Cpu {
    level: SimdLevel,
    /// The threads besides the caller's.
    pool: Option<Arc<rayon::ThreadPool>>,
}

impl Cpu {
    /// The reference ([`plain`]) on the calling thread.
    pub const PLAIN: Cpu = Cpu { level: SimdLevel::Plain, pool: None };

    /// Creates a CPU with the given level and number of threads, including the caller's; 0 counts as 1.
    ///
    /// If the system refuses to start threads, it runs on the caller's alone: see [`Cpu::threads`]. Returns
    /// [`Unavailable`] if this machine lacks the level.
    pub fn new(level: SimdLevel, threads: usize) -> Result<Cpu, Unavailable> {
        if !level.is_available() {
            return Err(Unavailable { level });
        }
        let pool = match threads {
            0 | 1 => None,
            // The calling thread is one of them.
            n => rayon::ThreadPoolBuilder::new().num_threads(n - 1).build().ok().map(Arc::new),
        };
        Ok(Cpu { level, pool })
    }

    /// Returns a CPU with the fastest level and one thread per available core.
    pub fn best() -> Cpu {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Cpu::new(SimdLevel::best(), threads).unwrap_or(Cpu::PLAIN)
    }

    /// Returns the level in use.
    pub fn level(&self) -> SimdLevel {
        self.level
    }

    /// Returns the number of threads in use, including the caller's.
    pub fn threads(&self) -> usize {
        self.pool.as_ref().map_or(1, |pool| pool.current_num_threads() + 1)
    }

    /// Runs every row of an op of the table.
    pub fn run<K: Compiled>(&self, kernel: &K) {
        kernel.run_on(self);
    }

    /// Runs the rows `rows` of an op of the table on the calling thread.
    pub fn rows<K: Compiled>(&self, kernel: &K, rows: Range<usize>) {
        kernel.rows_on(self, rows);
    }

    /// Runs every row of any kernel, including one that is not in the table and runs on the CPU only. The
    /// kernel is compiled in the calling crate.
    ///
    /// ```
    /// use lockstep_core::op::Kernel;
    /// use lockstep_core::ragged::{In, Out};
    /// use lockstep_core::team::Team;
    /// use lockstep_cpu::{Cpu, SimdLevel};
    ///
    /// lockstep_core::kernel! {
    ///     /// Twice the reward of each sequence; a row is a sequence.
    ///     pub struct Doubled<'a> {
    ///         /// Rewards.
    ///         pub rewards: In<'a, f32>,
    ///         /// Twice as much.
    ///         pub doubled: Out<'a, f32> [sequences],
    ///     }
    ///     // A row writes its own element: what `unsafe` promises.
    ///     unsafe "doubled", rows |k| k.rewards.len(), work |_, _| 1,
    ///         let sequences = |k| k.rewards.len();
    /// }
    ///
    /// impl Kernel for Doubled<'_> {
    ///     fn row<T: Team>(&self, team: &T, row: usize) {
    ///         if team.leads() {
    ///             self.doubled.put(row, 2.0 * self.rewards.at(row));
    ///         }
    ///     }
    /// }
    ///
    /// for level in SimdLevel::available() {
    ///     let (rewards, mut doubled) = ([0.5, -1.0, 3.0], [0.0; 3]);
    ///     let kernel = Doubled { rewards: In::new(&rewards), doubled: Out::new(&mut doubled) };
    ///     Cpu::new(level, 2).expect("an available level").run_own(&kernel);
    ///     assert_eq!(doubled, [1.0, -2.0, 6.0]);
    /// }
    /// ```
    pub fn run_own<K: DisjointRows>(&self, kernel: &K) {
        self.run_by(kernel, Cpu::rows_own);
    }

    /// Runs every row of `kernel` with `rows`.
    pub(crate) fn run_by<K: DisjointRows>(&self, kernel: &K, rows: Rows<K>) {
        match &self.pool {
            Some(pool) => threads::run(self, pool, kernel, rows),
            None => rows(self, kernel, 0..kernel.rows()),
        }
    }

    /// Returns the pool of threads besides the caller's, if there is one.
    pub(crate) fn pool(&self) -> Option<&rayon::ThreadPool> {
        self.pool.as_deref()
    }

    /// Scans keys for a band; see [`Cpu::nth_largest`].
    #[allow(unsafe_code)]
    pub(crate) fn scan(&self, keys: &[u32], first: usize, low: u32, high: u32) -> Band {
        match self.level {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` checked that this machine has the level's features.
            SimdLevel::Avx2 => unsafe { crate::avx::scan_avx2(keys, first, low, high) },
            #[cfg(all(target_arch = "x86_64", not(lockstep_without_avx512)))]
            // SAFETY: as above.
            SimdLevel::Avx512 => unsafe { crate::avx::scan_avx512(keys, first, low, high) },
            _ => nth::scan(keys, first, low, high),
        }
    }

    /// Runs the rows `rows` of any kernel on the calling thread; see [`Cpu::run_own`].
    // Inline, so that it is compiled where it is called, as are the levels' functions.
    #[inline]
    #[allow(unsafe_code)]
    pub fn rows_own<K: Kernel>(&self, kernel: &K, rows: Range<usize>) {
        match self.level {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` checked that this machine has the level's features.
            SimdLevel::Avx2 => unsafe { crate::avx::rows_avx2(kernel, rows) },
            #[cfg(all(target_arch = "x86_64", not(lockstep_without_avx512)))]
            // SAFETY: as above.
            SimdLevel::Avx512 => unsafe { crate::avx::rows_avx512(kernel, rows) },
            #[cfg(target_arch = "aarch64")]
            SimdLevel::Neon => crate::neon::rows_neon(kernel, rows),
            _ => plain::run(kernel, rows),
        }
    }
}
