//! Log-ratios of prefixes, of prefix minima and of rows, over a row's live d: docs/maths/correction.md.

/// Which log-ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Kind {
    Prefix,
    PrefixBefore,
    MinBefore,
    Min,
    Sum,
    Mean,
}

/// The log-ratio of each live token.
pub fn row(d: &[f64], kind: Kind, cap: bool) -> Vec<f64> {
    let total: f64 = d.iter().sum();
    let least = |prefix: &[f64]| {
        let least = prefix.iter().copied().fold(f64::INFINITY, f64::min);
        let least = if prefix.is_empty() { 0.0 } else { least };
        if cap { least.min(0.0) } else { least }
    };
    (0..d.len())
        .map(|t| match kind {
            Kind::Prefix => d[..=t].iter().sum(),
            Kind::PrefixBefore => d[..t].iter().sum(),
            Kind::MinBefore => least(&d[..t]) + d[t],
            Kind::Min => least(&d[..=t]),
            Kind::Sum => total,
            Kind::Mean => total / d.len() as f64,
        })
        .collect()
}
