//! What is printed: one line per file, then what is not covered yet.

use super::compare::Compared;
use crate::precision;
use std::fmt;

/// The largest error of one output array over the cases of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayReport {
    /// The array's name in the file.
    pub name: String,
    /// Largest error, relative to the largest expected value of the array.
    pub error: f64,
    /// Cases whose sum cancels, so that they were judged by the magnitudes of its terms.
    pub cancelled: usize,
}

/// One golden file.
#[derive(Clone, Debug, PartialEq)]
pub struct FileReport {
    /// File name.
    pub file: String,
    /// Op.
    pub op: String,
    /// Number of cases.
    pub cases: usize,
    /// One entry per output array.
    pub arrays: Vec<ArrayReport>,
    /// The cases that disagree, and how.
    pub failures: Vec<String>,
}

/// All files of a directory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GoldenReport {
    /// Files whose op exists.
    pub files: Vec<FileReport>,
    /// File and op of the others.
    pub uncovered: Vec<(String, String)>,
}

impl FileReport {
    pub(super) fn new(file: &str, op: &str, cases: usize) -> Self {
        FileReport { file: file.into(), op: op.into(), cases, arrays: Vec::new(), failures: Vec::new() }
    }

    pub(super) fn add(&mut self, case: usize, compared: &Compared) {
        let measured = compared.measure(precision::GOLDEN);
        let at = self.arrays.iter().position(|a| a.name == compared.name).unwrap_or_else(|| {
            let name = compared.name.clone();
            self.arrays.push(ArrayReport { name, error: 0.0, cancelled: 0 });
            self.arrays.len() - 1
        });
        let array = &mut self.arrays[at];
        if measured.decisive < measured.of_largest {
            array.cancelled += 1;
        }
        array.error = array.error.max(measured.decisive);
        // Never NaN: `measure` makes that infinite.
        if measured.decisive > precision::GOLDEN {
            self.fail(case, &format!("`{}` differs by {:.1e}", compared.name, measured.decisive));
        }
    }

    pub(super) fn fail(&mut self, case: usize, reason: &str) {
        self.failures.push(format!("case {case}: {reason}"));
    }

    /// Whether every case agrees and something was compared.
    pub fn passed(&self) -> bool {
        self.failures.is_empty() && !self.arrays.is_empty()
    }
}

impl GoldenReport {
    /// Whether every file whose op exists agrees, and there is at least one.
    pub fn passed(&self) -> bool {
        !self.files.is_empty() && self.files.iter().all(FileReport::passed)
    }
}

impl fmt::Display for FileReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.passed() { "pass" } else { "FAIL" };
        // `{file:40}` lines the files of a directory up.
        let width = f.width().unwrap_or(0);
        write!(f, "{verdict}  {:<width$} {:>3} cases ", self.file, self.cases)?;
        for ArrayReport { name, error, cancelled } in &self.arrays {
            write!(f, "  {name} {error:.1e}")?;
            if *cancelled > 0 {
                write!(f, " ({cancelled} cancelling, judged by their terms)")?;
            }
        }
        for failure in self.failures.iter().take(5) {
            write!(f, "\n      {failure}")?;
        }
        if self.failures.len() > 5 {
            write!(f, "\n      … and {} more", self.failures.len() - 5)?;
        }
        Ok(())
    }
}

impl fmt::Display for GoldenReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "largest error relative to the largest value of each array; allowed {:.0e}",
            precision::GOLDEN
        )?;
        let names =
            self.files.iter().map(|file| &file.file).chain(self.uncovered.iter().map(|(file, _)| file));
        let width = names.map(|name| name.len()).max().unwrap_or(0);
        for file in &self.files {
            writeln!(f, "{file:width$}")?;
        }
        for (file, op) in &self.uncovered {
            writeln!(f, "  -   {file:<width$} op {op} is not yet covered")?;
        }
        let passed = self.files.iter().filter(|file| file.passed()).count();
        write!(
            f,
            "{}: {passed} of {} covered files agree, {} not yet covered",
            if self.passed() { "pass" } else { "FAIL" },
            self.files.len(),
            self.uncovered.len()
        )
    }
}
