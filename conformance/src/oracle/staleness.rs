//! Versions within a sequence, docs/maths/correction.md: each live token's version, if it has one.

/// Whether a token is kept.
pub fn kept(version: Option<i64>, current: i64, max_staleness: i64) -> bool {
    version.is_none_or(|version| current - version <= max_staleness)
}

/// The start version and the number of off-policy tokens.
pub fn of_row(versions: &[Option<i64>], current: i64) -> (i64, usize) {
    let known = || versions.iter().flatten();
    (known().min().copied().unwrap_or(-1), known().filter(|version| **version < current).count())
}
