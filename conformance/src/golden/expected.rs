//! What the peer computed, beside what Lockstep did.

use super::compare::Compared;
use lockstep::Batch;
use serde_json::{Map, Value};

/// What the peer computed, and the comparisons so far.
pub(super) struct Expected<'a> {
    values: &'a Map<String, Value>,
    batch: &'a Batch<'a>,
    compared: Vec<Compared>,
}

impl<'a> Expected<'a> {
    pub(super) fn new(values: &'a Map<String, Value>, batch: &'a Batch<'a>) -> Self {
        Expected { values, batch, compared: Vec::new() }
    }

    /// A per-token array; the peer's values at masked tokens are padding and are not compared.
    pub(super) fn array(&mut self, name: &str, got: &[f64]) -> Result<(), String> {
        let Some(want) = self.values.get(name) else { return Ok(()) };
        let wrong = || format!("expected `{name}` is not a list of {} numbers", got.len());
        let want = want.as_array().ok_or_else(wrong)?;
        let want: Option<Vec<f64>> = want.iter().map(Value::as_f64).collect();
        let want = want.filter(|want| want.len() == got.len()).ok_or_else(wrong)?;
        let live = |values: &[f64]| -> Vec<f64> {
            (0..values.len()).filter(|i| self.batch.loss_mask().at(*i)).map(|i| values[i]).collect()
        };
        let compared = Compared::array(name, live(got), live(&want));
        self.compared.push(compared);
        Ok(())
    }

    pub(super) fn scalar(&mut self, name: &str, got: f64, terms: f64) -> Result<(), String> {
        let Some(want) = self.values.get(name) else { return Ok(()) };
        let want = want.as_f64().ok_or_else(|| format!("expected `{name}` is not a number"))?;
        self.compared.push(Compared::sum(name, got, want, terms));
        Ok(())
    }

    pub(super) fn metrics(&mut self, known: &[(&str, f64, f64)]) -> Result<(), String> {
        let Some(metrics) = self.values.get("metrics") else { return Ok(()) };
        let metrics = metrics.as_object().ok_or("expected `metrics` is not an object")?;
        for (name, want) in metrics {
            let Some((_, got, terms)) = known.iter().find(|(known, ..)| known == name) else {
                return Err(format!("expected metric `{name}` is not known for this op"));
            };
            let want = want.as_f64().ok_or_else(|| format!("expected metric `{name}` is not a number"))?;
            self.compared.push(Compared::sum(name, *got, want, *terms));
        }
        Ok(())
    }

    pub(super) fn finish(self, known: &[&str]) -> Result<Vec<Compared>, String> {
        match self.values.keys().find(|name| !known.contains(&name.as_str())) {
            Some(name) => Err(format!("expected `{name}` is not known for this op")),
            None => Ok(self.compared),
        }
    }
}
