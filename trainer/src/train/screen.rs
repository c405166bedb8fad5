//! Terminal output: one line per step on stdout, and progress bars on stderr if it is a terminal.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::record::{RlRecord, WarmRecord};
use crate::config::Config;
use crate::print::print;
use crate::report::{measure, shown};

/// The progress bars of a run: one for all RL steps, one for the parts of the current step.
pub(super) struct Screen {
    bars: MultiProgress,
    run: ProgressBar,
    step: ProgressBar,
    game: bool,
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("━╸─")
}

/// A bar with the time left.
pub(crate) fn progress_bar(length: u64, message: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(length)
        .with_style(style("{msg:>10} {wide_bar} {pos}/{len} · {elapsed} · {eta} left"))
        .with_message(message);
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

impl Screen {
    /// Creates the bars of a run that has completed `done` RL steps.
    pub(super) fn new(config: &Config, done: u64) -> Self {
        let bars = MultiProgress::new();
        let run = bars.add(progress_bar(config.rl.steps, "RL steps"));
        let step = bars.add(ProgressBar::new(1).with_style(style("{msg:>10} {wide_bar} {pos}/{len}")));
        run.set_position(done);
        run.reset_eta();
        Self { bars, run, step, game: config.game().is_some() }
    }

    /// Prints a line on stdout, above the bars. A full disk under the log does not end a run, whose results
    /// are in its folder.
    pub(super) fn line(&self, line: &str) {
        let _ = self.bars.suspend(|| print(&format!("{line}\n")));
    }

    /// Starts a step with `parts` parts.
    pub(super) fn begin(&self, name: &'static str, parts: u64) {
        self.step.set_message(name);
        self.step.set_length(parts);
        self.step.set_position(0);
    }

    /// Reports how many parts of the current step are done.
    pub(super) fn tick(&self, parts: u64) {
        self.step.set_position(parts);
    }

    /// Reports a finished warm-start step.
    pub(super) fn warm(&self, r: &WarmRecord, seconds: f64) {
        let pass = 100.0 * r.training_pass;
        let pass = match self.game {
            true => format!("plays {pass:>5.1} % of games by the rules"),
            false => format!("solves {pass:>5.1} % of training problems"),
        };
        self.line(&format!("warm {:>3}       loss {:.4}   {pass}   {seconds:.1} s", r.step, r.loss));
    }

    /// Reports a finished RL step.
    pub(super) fn rl(&self, r: &RlRecord, of: u64, seconds: f64) {
        self.run.set_position(r.step);
        let measured = r.measured().map(|x| format!("   {} {}", measure(self.game), shown(self.game, x)));
        let measured = measured.unwrap_or_default();
        self.line(&format!(
            "rl {:>5}/{of:<3}   reward {:.3}   ratio {:.2}..{:.2} ±{:.3}   clip ↑{:.2} ↓{:.2} %   KL \
             {:+.5}   entropy {:.3}   mismatch k3 {:.1e}   {seconds:.1} s{measured}",
            r.step,
            r.reward,
            r.ratio_min,
            r.ratio_max,
            r.ratio_std,
            100.0 * r.clip_high,
            100.0 * r.clip_low,
            r.approx_kl,
            r.entropy,
            r.mismatch_k3,
        ));
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.step.finish_and_clear();
        self.run.finish_and_clear();
    }
}
