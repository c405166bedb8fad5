//! Quick look: ns per token of the policy losses at each level.
use lockstep::core::aggregate::*;
use lockstep::core::gate::*;
use lockstep::core::ratio::Guard;
use lockstep::ops::policy_loss::*;
use lockstep::*;
use std::time::Instant;
fn main() {
    let n: usize = std::env::args().nth(2).and_then(|s| s.parse().ok()).unwrap_or(64 << 20);
    let len: usize = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(1024);
    let s = n / len;
    let cu: Vec<u32> = (0..=s as u32).map(|i| i * len as u32).collect();
    let cg: Vec<u32> = (0..=(s / 8) as u32).map(|i| i * 8).collect();
    let mut x = 1u64;
    let mut r = || { x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407); (x >> 40) as f32 / 16777216.0 };
    let old: Vec<f32> = (0..n).map(|_| -3.0 * r()).collect();
    let new: Vec<f32> = old.iter().map(|o| (o + 0.6 * (r() - 0.5)).min(0.0)).collect();
    let mask: Vec<u8> = (0..n).map(|_| (r() > 0.1) as u8).collect();
    let adv: Vec<f32> = (0..s).map(|_| 2.0 * r() - 1.0).collect();
    let batch = Batch::new(&cu, &cg, Some(&mask)).unwrap();
    let counts = batch.counts(&Device::cpu());
    let w = Weight { per_row: PerRow::Length { eps: 1e-8 }, denominator: s as f64, scale: 1.0 };
    let src = vec![1u8; 1024 << 20]; let mut dst = vec![0u8; 1024 << 20];
    for threads in [1, 2] {
        let mut best = f64::MAX;
        for _ in 0..4 {
            let t = Instant::now();
            std::thread::scope(|sc| for (a, b) in src.chunks(src.len() / threads).zip(dst.chunks_mut(src.len() / threads)) { sc.spawn(move || b.copy_from_slice(a)); });
            best = best.min(t.elapsed().as_secs_f64());
        }
        println!("copy {threads} threads {:.1} GB/s", 2.0 * src.len() as f64 / best / 1e9);
    }
    let only = std::env::var("LEVEL").ok();
    for level in Level::available().into_iter().filter(|l| only.as_deref().is_none_or(|o| o == l.name())) {
        for threads in [1, 2] {
            let d = Device::cpu_with(Some(level), Some(threads)).unwrap();
            for outputs in [Outputs::COEF, Outputs::ALL] {
                let mut out = PolicyOutput::default();
                let input = PolicyInput { outputs, counts: Some(counts), ..PolicyInput::new(&new, &old, Advantage::PerSequence(&adv)) };
                
                let mut time = |f: &mut dyn FnMut(&mut PolicyOutput)| { let mut b = f64::MAX; for _ in 0..(if level == Level::Plain {2} else {6 * (1 + (1 << 22) / n)}) { let t = Instant::now(); f(&mut out); b = b.min(t.elapsed().as_secs_f64()); } b * 1e9 / n as f64 };
                let g = Guard::clamp(20.0); let band = [0.8, 1.2];
                let p = PolicyParams { gate: PpoClip { clip_ratio_low: 0.2, clip_ratio_high: 0.28, clip_ratio_c: 3.0 }, guard: g, kl: None, weight: w, band };
                let q = PolicyParams { gate: Sapo::new(1.0, 1.05), guard: g, kl: None, weight: w, band };
                if std::env::var("PPO").is_ok() { for _ in 0..20000 { policy_loss(&d, &batch, &input, &q, &mut out).unwrap(); } return; }
                let a = time(&mut |o| policy_loss(&d, &batch, &input, &p, o).unwrap());
                let b = time(&mut |o| policy_loss(&d, &batch, &input, &q, o).unwrap());
                println!("{level} {threads} metrics {} ppo {a:.3} ns/token sapo {b:.3}  ({:.1} / {:.1} GB/s at 13 B)", outputs.metrics, 13.0 / a, 13.0 / b);
            }
        }
    }
}
