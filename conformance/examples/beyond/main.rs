//! Indices beyond 2³²: logits whose last row starts at element 2³² give the same bits as that row alone.
//! `beyond DEVICE…`
//!
//! Only that row takes part, so 16 GiB of logits take the memory of one row: host pages that are never
//! touched are not allocated, and the emulators keep only the pages that were touched.

use lockstep::plan::{Memory, Queue};
use lockstep::{Backend, Device, Error};
use lockstep_core::aggregate::RowScan;
use lockstep_core::check::{BLOCK, CheckValues, Domain, PASSED, first_fault, rows};
use lockstep_core::logits::statistics::{LogitsMoments, LogitsResults, STATE};
use lockstep_core::logits::{DrawTokens, LogitRows, LogitsKl, LogitsStatistics, kl};
use lockstep_core::ragged::{In, Mask, Offsets, Out};
use lockstep_core::routing::{ChosenOut, GatingForward, Router, RouterKind};
use lockstep_core::team::Direction;
use lockstep_cpu::{Cpu, SimdLevel};

const VOCAB: usize = 1 << 18;
/// The last of these rows starts at element 2³².
const ROWS: usize = (1 << 14) + 1;
const DRAWS: usize = 4;
const LABEL: u32 = VOCAB as u32 - 3;

fn noise(i: usize, salt: u32) -> f32 {
    let mixed = (i as u32).wrapping_mul(2_654_435_761).rotate_left(13) ^ salt.wrapping_mul(0x9e37_79b9);
    (mixed.wrapping_mul(0x85eb_ca6b) >> 8) as f32 / (1 << 21) as f32 - 4.0
}

/// The outputs of the last row, as bits.
type Bits = Vec<u64>;

/// Where an op runs and its memory is allocated.
enum Place {
    Cpu(Cpu),
    Device(Queue),
}

/// Memory in a place.
enum Array {
    /// Two words each.
    Host(Vec<u64>),
    Device(Memory),
}

#[allow(unsafe_code)]
impl Place {
    fn array(&self, words: usize) -> Result<Array, Error> {
        Ok(match self {
            // Zeroed by the system: pages that are never written are not allocated.
            Place::Cpu(_) => Array::Host(vec![0; words.div_ceil(2)]),
            Place::Device(queue) => Array::Device(queue.alloc(4 * words)?),
        })
    }

    /// Writes words starting at `at`.
    fn write(&self, array: &mut Array, at: usize, values: &[u32]) -> Result<(), Error> {
        match (self, array) {
            (_, Array::Host(words)) => {
                for (i, value) in values.iter().enumerate() {
                    let (word, shift) = ((at + i) / 2, 32 * ((at + i) % 2));
                    words[word] = words[word] & !(0xffff_ffff << shift) | u64::from(*value) << shift;
                }
            }
            (Place::Device(queue), Array::Device(memory)) => {
                // SAFETY: within the allocation, which nothing else uses.
                unsafe { queue.write(values, memory.as_ptr().cast::<u32>().wrapping_add(at))? }
            }
            (Place::Cpu(_), Array::Device(_)) => unreachable!("a CPU has arrays of the host"),
        }
        Ok(())
    }

    /// Reads words starting at `at`.
    fn read(&self, array: &Array, at: usize, count: usize) -> Result<Vec<u32>, Error> {
        Ok(match (self, array) {
            (_, Array::Host(words)) => {
                (at..at + count).map(|i| (words[i / 2] >> (32 * (i % 2))) as u32).collect()
            }
            (Place::Device(queue), Array::Device(memory)) => {
                let mut words = vec![0; count];
                // SAFETY: within the allocation, in the queue's order.
                unsafe { queue.download(memory.as_ptr().cast::<u32>().wrapping_add(at), &mut words)? };
                words
            }
            (Place::Cpu(_), Array::Device(_)) => unreachable!("a CPU has arrays of the host"),
        })
    }

    fn launch<K: lockstep::Compiled>(&self, kernel: &K) -> Result<(), Error> {
        match self {
            Place::Cpu(cpu) => {
                kernel.check()?;
                kernel.check_bounds()?;
                cpu.run(kernel);
                Ok(())
            }
            // SAFETY: the arrays are this device's, as long as their views say, and live until the results
            // are read.
            Place::Device(queue) => unsafe { queue.launch(kernel) },
        }
    }
}

#[allow(unsafe_code)]
impl Array {
    fn input<T: Copy>(&self, len: usize) -> In<'_, T> {
        // SAFETY: aligned to 8 bytes where required, long enough, and not written while the view lives.
        unsafe { In::from_raw(self.first().cast(), len) }
    }

    fn output<T: Copy>(&mut self, len: usize) -> Out<'_, T> {
        // SAFETY: as above, and borrowed mutably.
        unsafe { Out::from_raw(self.first().cast(), len) }
    }

    fn first(&self) -> *mut u8 {
        match self {
            Array::Host(words) => words.as_ptr().cast_mut().cast(),
            Array::Device(memory) => memory.as_ptr(),
        }
    }
}

/// Runs the ops that write little and read nothing of the other rows, on logits of `n` rows of which only the
/// last takes part.
fn last_row(place: &Place, n: usize) -> Result<Bits, Error> {
    let bits = |salt| -> Vec<u32> { (0..VOCAB).map(|i| noise(i, salt).to_bits()).collect() };
    let (mut logits, mut reference) = (place.array(n * VOCAB)?, place.array(n * VOCAB)?);
    place.write(&mut logits, (n - 1) * VOCAB, &bits(1))?;
    place.write(&mut reference, (n - 1) * VOCAB, &bits(2))?;
    let (mut live, mut labels, mut coef) = (place.array(n.div_ceil(4))?, place.array(n)?, place.array(n)?);
    let mask: Vec<u8> = (0..n.next_multiple_of(4)).map(|row| u8::from(row == n - 1)).collect();
    let words: Vec<u32> = mask.chunks(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    place.write(&mut live, 0, &words)?;
    place.write(&mut labels, 0, &vec![LABEL; n])?;
    place.write(&mut coef, 0, &vec![1.0f32.to_bits(); n])?;
    let rows = || LogitRows {
        logits: logits.input(n * VOCAB),
        rows: n,
        vocab: VOCAB,
        live: Mask::view(Some(live.input(n))),
    };
    let mut found = Vec::new();
    let mut outs: Vec<Array> = (0..7).map(|_| place.array(n)).collect::<Result<_, _>>()?;
    // State in binary64, three numbers per row.
    let mut state = place.array(2 * STATE * n)?;
    let mut drawn = place.array(DRAWS * n)?;
    {
        let [logp, lse, top, entropy, collision, score_norm, alarm] = &mut outs[..] else { unreachable!() };
        place.launch(&LogitsStatistics {
            rows: rows(),
            labels: labels.input(n),
            temperature: 0.9,
            results: LogitsResults {
                logp: logp.output(n),
                lse: lse.output(n),
                top: top.output(n),
                moments: Some(LogitsMoments {
                    entropy: entropy.output(n),
                    collision: collision.output(n),
                    score_norm: score_norm.output(n),
                }),
                state: state.output(STATE * n),
                row_alarm: alarm.output(n),
            },
        })?;
    }
    let mut keep = |outs: &[Array]| -> Result<(), Error> {
        for out in outs {
            found.extend(place.read(out, n - 1, 1)?.into_iter().map(u64::from));
        }
        Ok(())
    };
    keep(&outs)?;
    let [value, alarm, ..] = &mut outs[..] else { unreachable!() };
    place.launch(&LogitsKl {
        rows: rows(),
        reference: reference.input(n * VOCAB),
        direction: kl::Direction::Reference,
        temperature: 0.9,
        coef: coef.input(n),
        value: value.output(n),
        gradient: None,
        row_alarm: alarm.output(n),
    })?;
    place.launch(&DrawTokens {
        rows: rows(),
        temperature: 1.0,
        draws: DRAWS,
        seed: 5,
        // The same position in the whole batch, however many rows come before it here.
        first: (ROWS - n) as u64,
        tokens: drawn.output(DRAWS * n),
        row_alarm: alarm.output(n),
    })?;
    keep(&outs[..1])?;
    found.extend(place.read(&drawn, DRAWS * (n - 1), DRAWS)?.into_iter().map(u64::from));
    Ok(found)
}

/// Runs the last rows of a router and of a check alone, on arrays of more than 2³² elements; the other rows'
/// pages are never allocated on the host.
fn on_host(cpu: &Cpu) {
    const EXPERTS: usize = 512;
    const K: usize = 2;
    let gate = |n: usize| {
        let mut scores = vec![0.0f32; n * EXPERTS];
        let from = (n - 2) * EXPERTS;
        (0..2 * EXPERTS).for_each(|i| scores[from + i] = noise(i, 3));
        let (mut chosen, mut gates) = (vec![0u16; n * K], vec![0.0f32; n * K]);
        let (mut replayed, mut alarm) = (vec![0; n], vec![0; n]);
        let kernel = GatingForward {
            router: Router::new(RouterKind::SoftmaxAll, EXPERTS, K),
            rows: n,
            scores: In::new(&scores),
            bias: None,
            replay: None,
            chosen: ChosenOut::wide(Out::new(&mut chosen)),
            gates: Out::new(&mut gates),
            group_scores: None,
            row_replayed: Out::new(&mut replayed),
            row_alarm: Out::new(&mut alarm),
        };
        assert_eq!(lockstep_core::op::Launch::check_bounds(&kernel), Ok(()));
        cpu.rows(&kernel, n - 2..n);
        let gates: Vec<u32> = gates[(n - 2) * K..].iter().map(|gate| gate.to_bits()).collect();
        (chosen[(n - 2) * K..].to_vec(), gates)
    };
    assert_eq!(gate((1 << 23) + 2), gate(2), "{}: gating", cpu.level());

    // The position whose lower 32 bits equal those of "passed", and one after it.
    for fault in [(1usize << 32) - 1, (1 << 32) + 5] {
        let n = (1 << 32) + BLOCK;
        let mut values = vec![0.0f32; n];
        values[fault] = f32::NAN;
        let mut report = vec![PASSED; rows(n)];
        let (mask, domain) = (Mask::all(), Domain::Finite);
        let kernel =
            CheckValues { values: In::new(&values), mask, domain, first_fault: Out::new(&mut report) };
        cpu.rows(&kernel, fault / BLOCK..fault / BLOCK + 1);
        assert_eq!(first_fault(&report), Some(fault), "{}: check_values", cpu.level());
    }
}

/// An output that is too short is an error that names it, on every device.
fn short_output(device: &Device) {
    let (values, mut scanned) = ([1.0f32; 5], [7.0f32; 4]);
    let Ok(cu_seqlens) = Offsets::new("cu_seqlens", &[0, 2, 5], 5, "tokens") else { unreachable!() };
    let (loss_mask, values, direction) = (Mask::all(), In::new(&values), Direction::Prefix);
    let refused =
        device.run(&RowScan { cu_seqlens, loss_mask, values, direction, scanned: Out::new(&mut scanned) });
    let said = refused.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(said.contains("`scanned` has 4 entries: expected 5"), "{}: {said}", device.describe());
    assert_eq!(scanned, [7.0; 4]);
}

fn main() -> Result<(), Error> {
    let alone = last_row(&Place::Cpu(Cpu::PLAIN), 1)?;
    for name in std::env::args().skip(1) {
        let device = Device::open(&name)?;
        short_output(&device);
        let places = match device.backend() {
            Backend::Cpu => SimdLevel::available()
                .into_iter()
                .filter_map(|level| Cpu::new(level, 2).ok())
                .map(Place::Cpu)
                .collect(),
            _ => vec![Place::Device(device.queue()?)],
        };
        for place in &places {
            let found = last_row(place, ROWS)?;
            assert_eq!(found, alone, "{name}: row {} of {ROWS}", ROWS - 1);
            if let Place::Cpu(cpu) = place {
                on_host(cpu);
            }
        }
        println!("{name}: {} values of the row at element 2^32 are those of the row alone", alone.len());
    }
    Ok(())
}
