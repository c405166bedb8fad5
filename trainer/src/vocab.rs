//! Maps characters to tokens and back. Token 0 ends a response; the others are the task's characters in
//! ascending order.

use anyhow::{Context, Result};

/// The token that ends a response.
pub const END: u32 = 0;

/// A character-level vocabulary.
#[derive(Clone, Debug)]
pub struct Vocab {
    chars: Vec<char>,
}

impl Vocab {
    /// Builds the vocabulary of an alphabet.
    pub fn new(mut chars: Vec<char>) -> Self {
        chars.sort_unstable();
        chars.dedup();
        Self { chars }
    }

    /// Number of tokens, including the end token.
    pub fn size(&self) -> usize {
        self.chars.len() + 1
    }

    /// The token of a character, if it has one.
    pub fn token(&self, c: char) -> Option<u32> {
        self.chars.binary_search(&c).ok().map(|at| at as u32 + 1)
    }

    /// Encodes text, without an end token.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let token = |c| self.token(c).with_context(|| format!("character {c:?} is not in the vocabulary"));
        text.chars().map(token).collect()
    }

    /// Decodes tokens up to the first end token.
    pub fn decode(&self, tokens: &[u32]) -> String {
        tokens.iter().take_while(|&&t| t != END).filter_map(|&t| self.chars.get(t as usize - 1)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let vocab = Vocab::new("=+ba".chars().collect());
        let tokens = vocab.encode("a+b=").unwrap();
        assert_eq!(tokens, [3, 1, 4, 2]);
        assert_eq!(vocab.decode(&[3, 1, 4, 2, END, 3]), "a+b=");
        assert!(vocab.encode("c").is_err());
    }
}
