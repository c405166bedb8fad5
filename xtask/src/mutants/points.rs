//! Where a file of formulas can be changed, and to what.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, BinOp, Expr, ExprLit, ImplItemFn, ItemFn, ItemImpl, ItemMod, Lit, UnOp};

/// Bytes of a file.
pub(super) type Bytes = Range<usize>;

/// What stands at a place, by the bytes of its parts.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Site {
    /// `l op r`, both computed.
    Values { left: Bytes, right: Bytes },
    /// `l op r` of whatever can be compared.
    Compared { left: Bytes, right: Bytes },
    /// `l && r`, `l || r`.
    Logic { left: Bytes, right: Bytes, and: bool },
    /// `l op= r`.
    Assigned { left: Bytes, right: Bytes },
    /// `op x`.
    Unary { operand: Bytes },
    /// A number or a truth value.
    Literal,
    /// `l.min(r)`.
    Method { left: Bytes, right: Bytes },
    /// `function(l, r, …)`.
    Call { function: Bytes, arguments: Vec<Bytes> },
}

/// A place that can be changed.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// All of its bytes.
    pub(super) bytes: Bytes,
    /// What stands there.
    pub(super) site: Site,
    /// What it is, as written: `+`, `0.5`, `min`.
    pub(super) is: String,
    /// What it can become.
    pub(super) becomes: Vec<String>,
    /// The function that it is in: `Token::compute`.
    pub(super) function: String,
    /// Line and column, from 1.
    pub(super) at: (usize, usize),
}

/// Every place of a file.
pub(super) fn places(text: &str) -> Result<Vec<Place>> {
    let file = syn::parse_file(text).context("does not parse")?;
    let mut finder = Finder { text, ..Finder::default() };
    finder.visit_file(&file);
    Ok(finder.places)
}

/// A name for each change of each place that stays when code moves: function, change, number among its
/// equals.
pub(super) fn names(places: &[Place]) -> Vec<Vec<String>> {
    let mut seen = BTreeMap::new();
    let mut name = |place: &Place, new: &String| {
        let change = format!("{}: {} -> {new}", place.function, place.is);
        let number = seen.entry(change.clone()).and_modify(|n| *n += 1).or_insert(1);
        format!("{change} #{number}")
    };
    places.iter().map(|place| place.becomes.iter().map(|new| name(place, new)).collect()).collect()
}

#[derive(Default)]
struct Finder<'a> {
    text: &'a str,
    places: Vec<Place>,
    /// Type of an `impl`, name of a function.
    within: Vec<String>,
    /// Comparisons whose `if` gives one of the two sides: a tie gives the same number either way.
    ties: Vec<Bytes>,
}

/// Not compiled on a CPU outside of tests.
fn elsewhere(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.meta.require_list().is_ok_and(|list| {
            let condition = list.tokens.to_string();
            let elsewhere = ["test", "nvptx64", "amdgpu"].iter().any(|word| condition.contains(word));
            attribute.path().is_ident("cfg") && elsewhere && !condition.starts_with("not")
        })
    })
}

/// The attributes of the expressions that can be statements under a condition.
fn attributes(expr: &Expr) -> &[Attribute] {
    match expr {
        Expr::Assign(e) => &e.attrs,
        Expr::Block(e) => &e.attrs,
        Expr::Call(e) => &e.attrs,
        Expr::If(e) => &e.attrs,
        Expr::Match(e) => &e.attrs,
        Expr::MethodCall(e) => &e.attrs,
        Expr::Return(e) => &e.attrs,
        Expr::Unsafe(e) => &e.attrs,
        _ => &[],
    }
}

/// `cfg!(target_arch = …)` of a GPU.
fn asks_for_a_gpu(condition: &Expr) -> bool {
    matches!(condition, Expr::Macro(call) if call.mac.path.is_ident("cfg") && {
        let tokens = call.mac.tokens.to_string();
        (tokens.contains("amdgpu") || tokens.contains("nvptx64")) && !tokens.starts_with("not")
    })
}

/// Functions that compute nothing: what may be launched, and how arguments travel to a GPU.
fn computes(name: &syn::Ident) -> bool {
    let name = name.to_string();
    !(name.starts_with("check") || name == "encode" || name == "decode")
}

/// The only expression of a block.
fn only(block: &syn::Block) -> Option<&Expr> {
    match &block.stmts[..] {
        [syn::Stmt::Expr(expr, None)] => Some(expr),
        _ => None,
    }
}

/// What a binary operator can become.
fn others(op: &BinOp) -> (&'static str, &'static [&'static str]) {
    match op {
        BinOp::Add(_) => ("+", &["-"]),
        BinOp::Sub(_) => ("-", &["+"]),
        BinOp::Mul(_) => ("*", &["+"]),
        BinOp::Div(_) => ("/", &["*"]),
        BinOp::Rem(_) => ("%", &["/"]),
        BinOp::And(_) => ("&&", &["||"]),
        BinOp::Or(_) => ("||", &["&&"]),
        BinOp::BitAnd(_) => ("&", &["|"]),
        BinOp::BitOr(_) => ("|", &["&"]),
        BinOp::BitXor(_) => ("^", &["&"]),
        BinOp::Shl(_) => ("<<", &[">>"]),
        BinOp::Shr(_) => (">>", &["<<"]),
        BinOp::Eq(_) => ("==", &["!="]),
        BinOp::Ne(_) => ("!=", &["=="]),
        BinOp::Lt(_) => ("<", &["<=", ">"]),
        BinOp::Le(_) => ("<=", &["<", ">="]),
        BinOp::Gt(_) => (">", &[">=", "<"]),
        BinOp::Ge(_) => (">=", &[">", "<="]),
        BinOp::AddAssign(_) => ("+=", &["-="]),
        BinOp::SubAssign(_) => ("-=", &["+="]),
        BinOp::MulAssign(_) => ("*=", &["+="]),
        BinOp::DivAssign(_) => ("/=", &["*="]),
        BinOp::BitOrAssign(_) => ("|=", &["&="]),
        BinOp::BitAndAssign(_) => ("&=", &["|="]),
        _ => ("", &[]),
    }
}

fn is_assignment(op: &BinOp) -> bool {
    let comparison = matches!(op, BinOp::Eq(_) | BinOp::Ne(_) | BinOp::Le(_) | BinOp::Ge(_));
    others(op).0.ends_with('=') && !comparison
}

impl Finder<'_> {
    fn add(&mut self, of: &impl Spanned, site: Site, is: &str, becomes: &[&str]) {
        let (span, start) = (of.span(), of.span().start());
        self.places.push(Place {
            bytes: span.byte_range(),
            site,
            is: is.to_owned(),
            becomes: becomes.iter().map(|new| (*new).to_owned()).collect(),
            function: self.within.join("::"),
            at: (start.line, start.column + 1),
        });
    }

    fn inside(&mut self, name: String, visit: impl FnOnce(&mut Self)) {
        self.within.push(name);
        visit(self);
        self.within.pop();
    }

    /// Notes the comparisons of `if a < b { a } else { b }`, also behind another condition and with
    /// conversions.
    fn note_ties(&mut self, branch: &syn::ExprIf) {
        let Some((_, other)) = &branch.else_branch else { return };
        let Expr::Block(other) = &**other else { return };
        let (Some(then), Some(other)) = (only(&branch.then_branch), only(&other.block)) else { return };
        let plain = |expr: &Expr| {
            let text: String = self.text[expr.span().byte_range()].split_whitespace().collect();
            text.replace("asf64", "").replace("f64::from", "").replace(".0", "").replace(['(', ')'], "")
        };
        let ends = [plain(then), plain(other)];
        let mut waiting = vec![&*branch.cond];
        let mut found = Vec::new();
        while let Some(expr) = waiting.pop() {
            match expr {
                Expr::Paren(inner) => waiting.push(&inner.expr),
                Expr::Binary(both) if matches!(both.op, BinOp::And(_) | BinOp::BitAnd(_)) => {
                    waiting.extend([&*both.left, &*both.right]);
                }
                Expr::Binary(both) => {
                    let sides = [plain(&both.left), plain(&both.right)];
                    if sides.iter().all(|side| ends.contains(side)) {
                        found.push(both.span().byte_range());
                    }
                }
                _ => {}
            }
        }
        self.ties.extend(found);
    }

    fn binary(&mut self, expr: &syn::ExprBinary) {
        let (left, right) = (expr.left.span().byte_range(), expr.right.span().byte_range());
        let (is, mut becomes) = others(&expr.op);
        if self.ties.contains(&expr.span().byte_range()) {
            becomes = &becomes[becomes.len() - 1..];
        }
        let site = match expr.op {
            // A chain of `let`s is no value.
            BinOp::And(_) if holds_let(&expr.left) || holds_let(&expr.right) => return,
            BinOp::And(_) => Site::Logic { left, right, and: true },
            BinOp::Or(_) => Site::Logic { left, right, and: false },
            BinOp::Eq(_) | BinOp::Ne(_) | BinOp::Lt(_) | BinOp::Le(_) | BinOp::Gt(_) | BinOp::Ge(_) => {
                Site::Compared { left, right }
            }
            _ if is_assignment(&expr.op) => Site::Assigned { left, right },
            _ => Site::Values { left, right },
        };
        if !becomes.is_empty() {
            self.add(expr, site, is, becomes);
        }
    }

    fn literal(&mut self, expr: &ExprLit) {
        match &expr.lit {
            Lit::Float(number) => {
                let digits = number.base10_digits();
                let zero = digits.parse::<f64>().is_ok_and(|value| value == 0.0);
                let written = &self.text[expr.span().byte_range()];
                let new = if zero { format!("({written} + 1.0)") } else { format!("({written} * 1.01)") };
                self.add(expr, Site::Literal, written, &[&new]);
            }
            Lit::Bool(value) => {
                let (is, new) = if value.value { ("true", "false") } else { ("false", "true") };
                self.add(expr, Site::Literal, is, &[new]);
            }
            _ => {}
        }
    }

    fn call(&mut self, expr: &syn::ExprCall) {
        let Expr::Path(path) = &*expr.func else { return };
        let Some(last) = path.path.segments.last() else { return };
        let name = last.ident.to_string();
        let new = match (name.as_str(), expr.args.len()) {
            ("div" | "div64", 2) => "swapped",
            ("min", 2) => "max",
            ("max", 2) => "min",
            ("fma", 3) => "minus the last",
            _ => return,
        };
        let arguments = expr.args.iter().map(|argument| argument.span().byte_range()).collect();
        let function = expr.func.span().byte_range();
        self.add(expr, Site::Call { function, arguments }, &name, &[new]);
    }
}

fn holds_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) => holds_let(&binary.left) || holds_let(&binary.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if item.sig.constness.is_none() && computes(&item.sig.ident) && !elsewhere(&item.attrs) {
            self.inside(item.sig.ident.to_string(), |finder| finder.visit_block(&item.block));
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if item.sig.constness.is_none() && computes(&item.sig.ident) && !elsewhere(&item.attrs) {
            self.inside(item.sig.ident.to_string(), |finder| finder.visit_block(&item.block));
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = item.default.as_ref().filter(|_| computes(&item.sig.ident)) {
            self.inside(item.sig.ident.to_string(), |finder| finder.visit_block(block));
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if elsewhere(&item.attrs) {
            return;
        }
        let name = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        };
        self.inside(name.unwrap_or_default(), |finder| visit::visit_item_impl(finder, item));
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.inside(item.ident.to_string(), |finder| visit::visit_item_trait(finder, item));
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !elsewhere(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if !elsewhere(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_expr(&mut self, expr: &'ast Expr) {
        if elsewhere(attributes(expr)) {
            return;
        }
        match expr {
            Expr::Binary(binary) => {
                self.binary(binary);
                // What is assigned to stands twice in the changed text.
                if !is_assignment(&binary.op) {
                    self.visit_expr(&binary.left);
                }
                self.visit_expr(&binary.right);
                return;
            }
            Expr::Unary(unary) => match unary.op {
                UnOp::Not(_) => {
                    let operand = unary.expr.span().byte_range();
                    self.add(unary, Site::Unary { operand }, "!", &["nothing"]);
                }
                UnOp::Neg(_) => {
                    let operand = unary.expr.span().byte_range();
                    self.add(unary, Site::Unary { operand }, "minus", &["nothing"]);
                }
                _ => {}
            },
            Expr::Lit(literal) => self.literal(literal),
            Expr::Call(call) => self.call(call),
            Expr::MethodCall(call) if call.args.len() == 1 && call.turbofish.is_none() => {
                let new = match call.method.to_string().as_str() {
                    "min" => Some("max"),
                    "max" => Some("min"),
                    _ => None,
                };
                if let Some(new) = new {
                    let (left, right) = (call.receiver.span().byte_range(), call.args[0].span().byte_range());
                    self.add(call, Site::Method { left, right }, &call.method.to_string(), &[new]);
                }
            }
            Expr::If(branch) if asks_for_a_gpu(&branch.cond) => {
                if let Some((_, other)) = &branch.else_branch {
                    self.visit_expr(other);
                }
                return;
            }
            Expr::If(branch) => self.note_ties(branch),
            // The length is a constant.
            Expr::Repeat(repeat) => return self.visit_expr(&repeat.expr),
            Expr::Const(_) => return,
            _ => {}
        }
        visit::visit_expr(self, expr);
    }

    // Constants, types and patterns hold no value that is computed at run time.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
}
