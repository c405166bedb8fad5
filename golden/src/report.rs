//! The printed report: one line per file.

use crate::compare::{Compared, GOLDEN};
use crate::outcome::Exception;
use std::collections::BTreeMap;
use std::fmt;

/// The largest errors of one output array over the cases of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayReport {
    /// The array's name in the file; names of metrics begin with `metrics.`.
    pub name: String,
    /// Largest error, relative to the largest expected value of the array.
    pub error: f64,
    /// Largest error of an element relative to its allowance: at most 1.
    pub of_allowed: f64,
    /// Cases whose sum cancels and was therefore judged by the magnitudes of its terms.
    pub cancelled: usize,
}

/// One golden file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileReport {
    /// File name.
    pub file: String,
    /// Op.
    pub op: String,
    /// Name and commit or version of the code.
    pub code: String,
    /// Number of cases.
    pub cases: usize,
    /// The source whose table covers the op, if there is one.
    pub source: Option<&'static str>,
    /// Cases that agree.
    pub agreed: usize,
    /// One entry per output array.
    pub arrays: Vec<ArrayReport>,
    /// The presets and functions that agree, with their numbers of cases.
    pub names: BTreeMap<&'static str, usize>,
    /// The choices of one call that agree, regardless of their numbers, with their numbers of cases.
    pub halves: BTreeMap<String, usize>,
    /// Reasons for the cases that differ as the table states, with their numbers.
    pub exceptions: BTreeMap<&'static str, usize>,
    /// What Lockstep has no choice for yet, with the number of cases.
    pub missing: BTreeMap<&'static str, usize>,
    /// Disagreements, with details.
    pub failures: Vec<String>,
}

/// Name and version (or the start of a commit) from the text of `source`.
fn name_and_version(says: &str) -> String {
    let words = says.split([',', ';']).next().unwrap_or_default().split_whitespace();
    let words =
        words.filter(|word| *word != "github").take_while(|word| *word != "in" && !word.starts_with('('));
    let is_commit = |word: &str| word.len() == 40 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    words.map(|word| if is_commit(word) { &word[..8] } else { word }).collect::<Vec<_>>().join(" ")
}

/// The report on all files of a folder.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GoldenReport {
    /// The files, sorted by name.
    pub files: Vec<FileReport>,
}

impl FileReport {
    pub(crate) fn new(file: &str, op: &str, says: &str, cases: usize) -> Self {
        let (file, op, code) = (file.into(), op.into(), name_and_version(says));
        FileReport { file, op, code, cases, ..FileReport::default() }
    }

    /// Records a case that one of our presets or functions ran. Returns whether it agrees.
    pub(crate) fn case(
        &mut self,
        case: usize,
        compared: &[Compared],
        ours: &'static str,
        exception: Option<Exception>,
    ) -> bool {
        let before = self.failures.len();
        if compared.iter().all(|one| one.want.is_empty()) {
            self.fail(case, "nothing was compared");
            return false;
        }
        let differs = compared.iter().any(|one| !one.measure().passes);
        if let (true, Some(Exception::Differs(why))) = (differs, exception) {
            *self.exceptions.entry(why).or_default() += 1;
            return false;
        }
        for one in compared {
            self.add(case, one);
        }
        let agrees = self.failures.len() == before;
        if agrees {
            self.agreed += 1;
            *self.names.entry(ours).or_default() += 1;
        }
        agrees
    }

    /// Records a case that our code refused.
    pub(crate) fn refused(&mut self, case: usize, reason: &str, exception: Option<Exception>) {
        match exception {
            Some(Exception::Refused(text, why)) if reason.contains(text) => {
                *self.exceptions.entry(why).or_default() += 1;
            }
            _ => self.fail(case, reason),
        }
    }

    /// Records a case that needs a choice Lockstep does not have.
    pub(crate) fn misses(&mut self, what: &'static str) {
        *self.missing.entry(what).or_default() += 1;
    }

    /// Number of cases that need a choice Lockstep does not have.
    pub fn missed(&self) -> usize {
        self.missing.values().sum()
    }

    /// Number of cases that differ as the table states.
    pub fn excepted(&self) -> usize {
        self.exceptions.values().sum()
    }

    fn add(&mut self, case: usize, compared: &Compared) {
        let measured = compared.measure();
        let at = self.arrays.iter().position(|a| a.name == compared.name).unwrap_or_else(|| {
            let name = compared.name.clone();
            self.arrays.push(ArrayReport { name, error: 0.0, of_allowed: 0.0, cancelled: 0 });
            self.arrays.len() - 1
        });
        let array = &mut self.arrays[at];
        array.cancelled += usize::from(measured.cancelled);
        array.error = array.error.max(measured.of_largest);
        array.of_allowed = array.of_allowed.max(measured.of_allowed);
        if !measured.passes {
            let (at, name) = (measured.worst, &compared.name);
            let (got, want) = (compared.got[at], compared.want[at]);
            let (relative, allowed) = (measured.of_largest, measured.of_allowed);
            let reason = format!(
                "`{name}` differs by {relative:.1e} of the largest, worst at {at}: {got:e}, not {want:e} \
                 ({allowed:.1} times what is allowed)"
            );
            self.fail(case, &reason);
        }
    }

    pub(crate) fn fail(&mut self, case: usize, reason: &str) {
        self.failures.push(format!("case {case}: {reason}"));
    }

    /// Whether every case agrees.
    pub fn passed(&self) -> bool {
        self.source.is_some()
            && self.failures.is_empty()
            && self.agreed + self.excepted() + self.missed() == self.cases
            && self.cases > 0
    }
}

impl GoldenReport {
    /// Whether every file is covered, every case agrees, and there is at least one file.
    pub fn passed(&self) -> bool {
        !self.files.is_empty() && self.files.iter().all(FileReport::passed)
    }
}

impl fmt::Display for FileReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.passed() { "pass" } else { "FAIL" };
        // `{file:40}` aligns the files of a directory.
        let width = f.width().unwrap_or(0);
        write!(f, "{verdict}  {:<width$} {:>3} of {:>3} cases ", self.file, self.agreed, self.cases)?;
        for ArrayReport { name, error, of_allowed, cancelled } in &self.arrays {
            let name = name.strip_prefix("metrics.").unwrap_or(name);
            write!(f, "  {name} {error:.1e} ({of_allowed:.2}")?;
            if *cancelled > 0 {
                write!(f, ", {cancelled} cancelling, judged by their terms")?;
            }
            write!(f, ")")?;
        }
        for (why, cases) in &self.exceptions {
            write!(f, "\n      {cases} differ: {why}")?;
        }
        for (what, cases) in &self.missing {
            write!(f, "\n      {cases} not yet: {what}")?;
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
            "largest error relative to the largest value of each array, allowed {GOLDEN:.0e} (and of an \
             element, in parts of what it is allowed)"
        )?;
        let width = self.files.iter().map(|file| file.file.len()).max().unwrap_or(0);
        for file in &self.files {
            writeln!(f, "{file:width$}")?;
        }
        let count = |good: fn(&FileReport) -> bool| self.files.iter().filter(|file| good(file)).count();
        let sum = |number: fn(&FileReport) -> usize| self.files.iter().map(number).sum::<usize>();
        write!(
            f,
            "{}: {} of {} files covered, {} agree; {} of {} cases agree, {} differ with a reason, {} are not \
             yet possible",
            if self.passed() { "pass" } else { "FAIL" },
            count(|file| file.source.is_some()),
            self.files.len(),
            count(FileReport::passed),
            sum(|file| file.agreed),
            sum(|file| file.cases),
            sum(FileReport::excepted),
            sum(FileReport::missed),
        )
    }
}
