//! Parses PTX text into functions of instructions.

use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;

/// A parsed file.
#[derive(Clone, Debug, Default)]
pub struct Module {
    /// Text outside functions, with its line.
    pub directives: Vec<(usize, String)>,
    /// Functions in order.
    pub functions: Vec<Function>,
}

/// A function with its code.
#[derive(Clone, Debug, Default)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Line of its name.
    pub line: usize,
    /// Whether it is an entry point.
    pub entry: bool,
    /// `.reg …` and the like, with their lines.
    pub declarations: Vec<(usize, String)>,
    /// Its instructions.
    pub code: Vec<Instruction>,
    /// Maps a label to the index of the next instruction.
    pub labels: BTreeMap<String, usize>,
    /// Maps a branch table to its labels.
    pub tables: BTreeMap<String, Vec<String>>,
}

/// An instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Line number, from 1.
    pub line: usize,
    /// The register of `@%p` or `@!%p`.
    pub guard: Option<String>,
    /// The opcode with its suffixes: `fma.rn.f32`.
    pub opcode: String,
    /// As written.
    pub operands: Vec<String>,
}

impl Instruction {
    /// The opcode up to the first dot.
    pub fn base(&self) -> &str {
        self.opcode.split('.').next().unwrap_or_default()
    }

    /// Whether the opcode has this suffix.
    pub fn has(&self, suffix: &str) -> bool {
        self.opcode.split('.').skip(1).any(|part| part == suffix)
    }

    /// The registers that it writes.
    pub fn writes(&self) -> Vec<&str> {
        match self.base() {
            "st" | "bra" | "brx" | "ret" | "exit" | "trap" | "bar" | "barrier" | "red" | "membar"
            | "fence" | "call" | "prefetch" | "nanosleep" => Vec::new(),
            _ => self.operands.first().map(|operand| registers(operand)).unwrap_or_default(),
        }
    }

    /// The registers that it reads, including special ones and its guard.
    pub fn reads(&self) -> Vec<&str> {
        let skip = usize::from(!self.writes().is_empty());
        let operands = self.operands.iter().skip(skip).flat_map(|operand| registers(operand));
        operands.chain(self.guard.as_deref()).collect()
    }
}

/// Names in an operand: registers, and names of arguments and labels, which no instruction writes.
fn registers(operand: &str) -> Vec<&str> {
    let part = |c: char| c.is_ascii_alphanumeric() || "%_$.".contains(c);
    let words = operand.split(|c| !part(c)).filter(|word| !word.is_empty() && *word != "_");
    words.filter(|word| !word.starts_with(|c: char| c.is_ascii_digit())).collect()
}

/// Parses a file.
pub fn parse(text: &str) -> Result<Module> {
    let mut module = Module::default();
    let mut lines =
        text.lines().enumerate().map(|(i, line)| (i + 1, line.split("//").next().unwrap_or_default()));
    while let Some((line, text)) = lines.next() {
        let start = text.trim();
        if start.is_empty() {
            continue;
        }
        let kind = [".entry ", ".func "].into_iter().find(|kind| start.contains(kind));
        let Some(kind) = kind.filter(|_| !start.contains(".extern")) else {
            module.directives.push((line, start.to_owned()));
            continue;
        };
        let name = start.split_once(kind).and_then(|(_, rest)| rest.split('(').next()).unwrap_or_default();
        let mut function =
            Function { name: name.trim().to_owned(), line, entry: kind == ".entry ", ..Function::default() };
        let mut body = Vec::new();
        let mut end = false;
        for (line, text) in lines.by_ref().skip_while(|(_, text)| !text.starts_with('{')).skip(1) {
            end = text.starts_with('}');
            if end {
                break;
            }
            body.push((line, text));
        }
        ensure!(end, "{}, line {line}: a body without its end", function.name);
        statements(&mut function, &body).with_context(|| function.name.clone())?;
        function.targets_exist()?;
        module.functions.push(function);
    }
    ensure!(!module.functions.is_empty(), "no function");
    Ok(module)
}

/// Reads the lines between the braces of a function.
fn statements(function: &mut Function, lines: &[(usize, &str)]) -> Result<()> {
    // A statement may span lines (branch tables), and a line may hold several (scopes).
    let (mut pending, mut begun) = (String::new(), 0);
    for (line, text) in lines {
        for c in text.chars() {
            let empty = pending.trim().is_empty();
            match c {
                '{' | '}' if empty => {}
                ';' => {
                    statement(function, begun, pending.trim())?;
                    pending.clear();
                }
                ':' => {
                    function.labels.insert(pending.trim().to_owned(), function.code.len());
                    pending.clear();
                }
                _ => {
                    if empty {
                        begun = *line;
                    }
                    pending.push(c);
                }
            }
        }
        pending.push(' ');
    }
    ensure!(pending.trim().is_empty(), "line {begun}: `{}` does not end", pending.trim());
    Ok(())
}

fn statement(function: &mut Function, line: usize, text: &str) -> Result<()> {
    if let Some(list) = text.strip_prefix(".branchtargets") {
        // Its label came before it.
        let here = function.labels.iter().filter(|(_, at)| **at == function.code.len());
        let name = here.map(|(label, _)| label).find(|label| label.contains("brx"));
        let label = name.context("a branch table without a name")?.clone();
        function.labels.remove(&label);
        function.tables.insert(label, list.split(',').map(|target| target.trim().to_owned()).collect());
        return Ok(());
    }
    if text.starts_with('.') {
        function.declarations.push((line, text.split_whitespace().collect::<Vec<_>>().join(" ")));
        return Ok(());
    }
    let (guard, text) = match text.strip_prefix('@') {
        None => (None, text),
        Some(rest) => {
            let (register, rest) =
                rest.split_once(char::is_whitespace).context("a guard without an instruction")?;
            (Some(register.trim_start_matches('!').to_owned()), rest.trim())
        }
    };
    let (opcode, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    ensure!(opcode.starts_with(|c: char| c.is_ascii_lowercase()), "line {line}: `{text}` is no instruction");
    let mut operands = vec![String::new()];
    let mut depth = 0;
    for c in rest.trim().chars() {
        depth += i32::from("{[(".contains(c)) - i32::from("}])".contains(c));
        match operands.last_mut() {
            Some(operand) if c != ',' || depth > 0 => operand.push(c),
            _ => operands.push(String::new()),
        }
    }
    operands.retain_mut(|operand| {
        *operand = operand.trim().to_owned();
        !operand.is_empty()
    });
    function.code.push(Instruction { line, guard, opcode: opcode.to_owned(), operands });
    Ok(())
}

impl Function {
    /// Whether it is an entry point in which the warps of a block share a row.
    pub fn is_block(&self) -> bool {
        self.name.ends_with("_block")
    }

    /// Indices that an instruction may jump to.
    pub fn targets(&self, instruction: &Instruction) -> Result<Vec<usize>> {
        let names = match instruction.base() {
            "bra" => instruction.operands.clone(),
            "brx" => {
                let table = instruction.operands.last().and_then(|name| self.tables.get(name));
                table.with_context(|| format!("line {}: no branch table", instruction.line))?.clone()
            }
            _ => Vec::new(),
        };
        let find = |name: &String| self.labels.get(name).copied().with_context(|| format!("no label {name}"));
        names.iter().map(find).collect()
    }

    fn targets_exist(&self) -> Result<()> {
        for instruction in &self.code {
            for target in self.targets(instruction)? {
                if target >= self.code.len() {
                    bail!("{}, line {}: a jump to the end of the text", self.name, instruction.line);
                }
            }
        }
        Ok(())
    }
}
