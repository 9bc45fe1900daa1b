//! Prompts of a wanted length that a server has not seen before.

use super::client::{Ask, Client};
use std::time::{SystemTime, UNIX_EPOCH};

const WORDS: [&str; 48] = [
    "air", "apple", "arm", "band", "bird", "blue", "boat", "book", "bridge", "cloud", "corn", "day", "door",
    "dream", "east", "field", "fire", "fish", "gold", "green", "hand", "hill", "horse", "house", "ice",
    "iron", "lake", "land", "light", "moon", "night", "north", "paper", "rain", "river", "road", "salt",
    "sea", "ship", "snow", "song", "star", "stone", "storm", "sun", "tree", "water", "wind",
];

/// Words without a pattern.
pub(super) struct Words(u64);

impl Words {
    /// Others in every run: a server may remember the last one.
    pub(super) fn new() -> Words {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Words(now.as_nanos() as u64 ^ u64::from(std::process::id()))
    }

    /// So many of them.
    pub(super) fn text(&mut self, words: usize) -> String {
        let text: Vec<&str> = (0..words).map(|_| WORDS[self.next() as usize % WORDS.len()]).collect();
        text.join(" ")
    }

    /// The generator is splitmix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) >> 8
    }
}

/// How many tokens a server makes of words.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    /// Of the template.
    fixed: f64,
    a_word: f64,
}

/// Words of the prompts by which the scale is found, and of one without context.
const FEW: usize = 16;
const MANY: usize = 144;

impl Scale {
    /// From two short requests; a server that does not count has a token a word.
    pub(super) fn measure(client: &Client, words: &mut Words) -> anyhow::Result<Scale> {
        let mut count = |n| -> anyhow::Result<Option<u64>> {
            let answer = client.ask(&Ask { prompt: words.text(n), tokens: 1 })?;
            Ok(answer.usage.map(|usage| usage.prompt))
        };
        Ok(match (count(FEW)?, count(MANY)?) {
            (Some(few), Some(many)) => Scale::from(few, many),
            _ => Scale { fixed: 0.0, a_word: 1.0 },
        })
    }

    fn from(few: u64, many: u64) -> Scale {
        let a_word = (many.saturating_sub(few) as f64 / (MANY - FEW) as f64).max(0.1);
        Scale { fixed: (few as f64 - a_word * FEW as f64).max(0.0), a_word }
    }

    /// The words that make about so many tokens.
    pub(super) fn words(self, tokens: u32) -> usize {
        (((f64::from(tokens) - self.fixed) / self.a_word).round() as usize).max(FEW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_prompts_begin_alike() {
        let mut words = Words::new();
        let all: BTreeSet<String> = (0..1000).map(|_| words.text(FEW)).collect();
        assert_eq!(all.len(), 1000);
        assert!(all.iter().all(|text| text.split(' ').count() == FEW));
    }

    #[test]
    fn lengths_follow_the_servers_count() {
        let check = |few: u64, many: u64, tokens: u32, expected: usize| {
            assert_eq!(Scale::from(few, many).words(tokens), expected, "{few} {many} {tokens}");
        };
        check(26, 154, 8192, 8182);
        check(42, 298, 8192, 4091);
        check(26, 154, 0, FEW);
        check(5, 5, 100, 966);
        check(900, 3, 100, FEW);
    }
}
