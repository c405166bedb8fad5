//! Splits PTX text into tokens. Nothing is refused here: what is not a PTX token becomes a mark that no
//! parser rule accepts.

/// A piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'t> {
    pub(crate) kind: Kind,
    /// As written; for a string, without its quotes.
    pub(crate) text: &'t str,
    /// Line, from 1.
    pub(crate) line: u32,
    /// Offset in bytes.
    pub(crate) start: usize,
}

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `fma.rn.f32`, `.reg`, `%tid.x`, `$L__BB0_1`.
    Word,
    /// `12`, `0x1f`, `0f3F800000`, `7.0`.
    Number,
    /// A quoted string.
    Text,
    /// A single character.
    Mark,
    /// The end of the text.
    End,
}

/// Reads tokens one by one.
#[derive(Clone, Debug)]
pub(crate) struct Lexer<'t> {
    text: &'t str,
    at: usize,
    line: u32,
}

impl<'t> Lexer<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Lexer { text, at: 0, line: 1 }
    }

    /// Returns the next token; after the last one always `End`.
    pub(crate) fn next(&mut self) -> Token<'t> {
        self.skip();
        let (start, line) = (self.at, self.line);
        let rest = &self.text[start..];
        let Some(first) = rest.chars().next() else {
            return Token { kind: Kind::End, text: "end of the text", line, start };
        };
        let (kind, len) = if first == '"' {
            match rest[1..].find('"') {
                Some(end) => (Kind::Text, end + 2),
                None => (Kind::Mark, 1),
            }
        } else if part(first) {
            let len = rest.find(|c| !part(c)).unwrap_or(rest.len());
            (if first.is_ascii_digit() { Kind::Number } else { Kind::Word }, len)
        } else {
            (Kind::Mark, first.len_utf8())
        };
        self.at += len;
        let text = &rest[..len];
        self.line += text.matches('\n').count() as u32;
        let text = if kind == Kind::Text { &text[1..len - 1] } else { text };
        Token { kind, text, line, start }
    }

    /// Skips blanks and comments.
    fn skip(&mut self) {
        loop {
            let rest = &self.text[self.at..];
            let len = if rest.starts_with("//") {
                rest.find('\n').unwrap_or(rest.len())
            } else if rest.starts_with("/*") {
                match rest.find("*/") {
                    Some(end) => end + 2,
                    // The slash becomes a mark that no rule accepts.
                    None => return,
                }
            } else {
                rest.find(|c: char| !c.is_ascii_whitespace()).unwrap_or(rest.len())
            };
            if len == 0 {
                return;
            }
            self.line += rest[..len].matches('\n').count() as u32;
            self.at += len;
        }
    }
}

/// Characters of words and numbers. A point belongs to both: `.reg`, `add.s64`, `%tid.x`, `7.0`.
fn part(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_their_lines() {
        let mut lexer = Lexer::new("// one\nld.global.b32 %r1, [%rd2+-4]; /* a\nb */ @!%p1 \"x y\" é");
        let mut found = Vec::new();
        loop {
            let token = lexer.next();
            if token.kind == Kind::End {
                break;
            }
            found.push((token.text, token.line));
        }
        let second =
            ["ld.global.b32", "%r1", ",", "[", "%rd2", "+", "-", "4", "]", ";"].map(|text| (text, 2));
        let third = ["@", "!", "%p1", "x y", "é"].map(|text| (text, 3));
        assert_eq!(found, [&second[..], &third[..]].concat());
    }

    #[test]
    fn what_does_not_end_is_a_mark() {
        assert_eq!(Lexer::new("/* never").next().text, "/");
        assert_eq!(Lexer::new("\"never").next().text, "\"");
    }
}
