//! Parses a listing into functions of instructions.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;

/// A kernel.
#[derive(Clone, Debug, Default)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its instructions.
    pub code: Vec<Instruction>,
    /// Maps a label to the index of the next instruction.
    pub labels: BTreeMap<String, usize>,
}

/// An instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Line number, from 1.
    pub line: usize,
    /// As written, including the encoding (`_e32`).
    pub mnemonic: String,
    /// As written.
    pub operands: Vec<String>,
}

impl Instruction {
    /// The mnemonic without its encoding.
    pub fn base(&self) -> &str {
        let name = &self.mnemonic[..];
        ["_e32", "_e64", "_sdwa", "_dpp"]
            .iter()
            .find_map(|encoding| name.strip_suffix(encoding))
            .unwrap_or(name)
    }

    /// The vector registers that it writes.
    pub fn writes(&self) -> Vec<u32> {
        let stores = ["global_store", "s_", "v_readfirstlane", "v_readlane", "v_cmp"];
        match self.operands.first() {
            Some(first) if !stores.iter().any(|prefix| self.mnemonic.starts_with(prefix)) => {
                vector_registers(first)
            }
            _ => Vec::new(),
        }
    }

    /// The vector registers that it reads.
    pub fn reads(&self) -> Vec<u32> {
        let accumulates = self.base().starts_with("v_fmac") || self.base().starts_with("v_writelane");
        let skip = usize::from(!self.writes().is_empty() && !accumulates);
        self.operands.iter().skip(skip).flat_map(|operand| vector_registers(operand)).collect()
    }
}

/// The registers of an operand such as `-v5`, `|v5|` or `v[4:5] offset:64`.
fn vector_registers(operand: &str) -> Vec<u32> {
    let operand = operand.split_whitespace().next().unwrap_or_default();
    let operand =
        operand.trim_matches(|c| "-|()".contains(c)).trim_start_matches("neg").trim_start_matches("abs");
    let Some(rest) = operand.trim_matches(|c| "-|()".contains(c)).strip_prefix('v') else {
        return Vec::new();
    };
    if let Ok(register) = rest.parse() {
        return vec![register];
    }
    let range = rest
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .and_then(|range| range.split_once(':'));
    match range.map(|(first, last)| (first.parse(), last.parse())) {
        Some((Ok(first), Ok(last))) => (first..=last).collect(),
        _ => Vec::new(),
    }
}

/// Parses a listing.
pub fn parse(text: &str) -> Result<Vec<Function>> {
    let mut functions: Vec<Function> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim();
        if trimmed.is_empty() {
            continue;
        }
        if let Some(name) = trimmed.strip_prefix('<').and_then(|name| name.strip_suffix(">:")) {
            let is_label = name.strip_prefix('L').is_some_and(|number| number.parse::<u32>().is_ok());
            match functions.last_mut() {
                Some(function) if is_label => {
                    function.labels.insert(name.to_owned(), function.code.len());
                }
                _ => functions.push(Function { name: name.to_owned(), ..Function::default() }),
            }
            continue;
        }
        let function =
            functions.last_mut().with_context(|| format!("line {}: code without a kernel", index + 1))?;
        let (mnemonic, operands) = trimmed.split_once(char::is_whitespace).unwrap_or((trimmed, ""));
        let operands = operands
            .split(',')
            .map(|operand| operand.trim().to_owned())
            .filter(|operand| !operand.is_empty());
        function.code.push(Instruction {
            line: index + 1,
            mnemonic: mnemonic.to_owned(),
            operands: operands.collect(),
        });
    }
    ensure!(!functions.is_empty(), "no kernel in the listing");
    for function in &functions {
        ensure!(!function.code.is_empty(), "{} has no code", function.name);
        for at in 0..function.code.len() {
            function.next(at).with_context(|| function.name.clone())?;
        }
    }
    Ok(functions)
}

impl Function {
    /// Indices of the instructions that may follow instruction `at`.
    pub fn next(&self, at: usize) -> Result<Vec<usize>> {
        let instruction = &self.code[at];
        let mut next = Vec::new();
        if !["s_endpgm", "s_branch"].contains(&instruction.base()) {
            next.push(at + 1);
        }
        if instruction.mnemonic.starts_with("s_branch") || instruction.mnemonic.starts_with("s_cbranch") {
            let label = instruction.operands.first().and_then(|label| self.labels.get(label));
            next.push(*label.with_context(|| format!("line {}: a jump to nowhere", instruction.line))?);
        }
        ensure!(
            next.iter().all(|&next| next < self.code.len()),
            "line {}: runs out of the kernel",
            instruction.line
        );
        Ok(next)
    }
}
