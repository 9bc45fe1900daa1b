//! SentencePiece (`llama` in files): characters merged by the score of the joint token, bytes where nothing fits.

use std::borrow::Cow;

use shardwright_gguf::Meta;

use super::merge::{Part, merge};
use super::vocab::{Kind, Vocab};
use crate::error::{Error, Result};

const SCORES: &str = "tokenizer.ggml.scores";

/// Most bytes of a text that the one token for everything unknown stands for: a character.
pub(crate) const UNKNOWN: usize = 4;

/// All bytes of texts that a token, as the file spells it, may stand for.
pub(crate) fn covered(spelled: &[u8]) -> Cow<'_, [u8]> {
    match String::from_utf8_lossy(spelled).contains('▁') {
        true => [spelled, b" "].concat().into(),
        false => spelled.into(),
    }
}

/// Scores and byte tokens of a file.
#[derive(Debug)]
pub(crate) struct Spm {
    ranks: Vec<u32>,
    byte_ids: Vec<Option<u32>>,
    longest: usize,
    /// A text begins with a space that is not written.
    pub(crate) space_prefix: bool,
}

impl Spm {
    /// Reads the scores.
    pub(crate) fn from_meta(meta: &Meta, vocab: &Vocab) -> Result<Spm> {
        let scores: Vec<f32> = meta.need(SCORES)?;
        if scores.len() != vocab.len() {
            return Err(Error::key(
                SCORES,
                format!("has {} elements, expected {}, one per token", scores.len(), vocab.len()),
            ));
        }
        let byte_id = |b: u8| {
            let id = vocab.id(format!("<0x{b:02X}>").as_bytes());
            id.filter(|&id| vocab.is(id, Kind::Byte)).or_else(|| vocab.piece(&[b]))
        };
        Ok(Spm {
            ranks: scores.into_iter().map(rank).collect(),
            byte_ids: (0..=255).map(byte_id).collect(),
            longest: vocab.longest(),
            space_prefix: meta.may("tokenizer.ggml.add_space_prefix")?.unwrap_or(true),
        })
    }

    /// Appends the tokens of a text that holds no markers; `first` if it begins the text or follows a marker.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, first: bool, out: &mut Vec<u32>) -> Result<()> {
        let prefix = if first && self.space_prefix { "▁" } else { "" };
        let text = format!("{prefix}{}", text.replace(' ', "▁"));
        let bytes = text.as_bytes();
        let part = |(start, c): (usize, char)| {
            let len = c.len_utf8();
            Part { start, len, id: vocab.piece(&bytes[start..start + len]) }
        };
        let mut parts: Vec<Part> = text.char_indices().map(part).collect();
        merge(&mut parts, |l, r| {
            let len = l.len + r.len;
            let joint = (len <= self.longest).then(|| &bytes[l.start..l.start + len])?;
            let id = vocab.piece(joint)?;
            Some((self.ranks[id as usize], id))
        });
        for part in parts {
            match part.id {
                Some(id) => out.push(id),
                None => self.spell(vocab, &bytes[part.start..part.start + part.len], out)?,
            }
        }
        Ok(())
    }

    /// A character without a token: its bytes, or the one token for everything unknown.
    fn spell(&self, vocab: &Vocab, bytes: &[u8], out: &mut Vec<u32>) -> Result<()> {
        let ids: Option<Vec<u32>> = bytes.iter().map(|&b| self.byte_ids[b as usize]).collect();
        match (ids, vocab.unknown) {
            (Some(ids), _) => out.extend(ids),
            (None, Some(unknown)) => out.push(unknown),
            (None, None) => return Err(Error::NoToken { byte: bytes[0] }),
        }
        Ok(())
    }
}

/// The highest score gets the lowest rank; equal scores get equal ranks.
fn rank(score: f32) -> u32 {
    let bits = (score + 0.0).to_bits();
    let rising = if bits >> 31 == 0 { bits | 1 << 31 } else { !bits };
    !rising
}

#[cfg(test)]
mod tests {
    use super::rank;

    #[test]
    fn ranks_fall_as_scores_rise() {
        let scores = [f32::MAX, 1.0, 1e-40, 0.0, -1e-40, -1.0, -1000.0, f32::MIN];
        assert!(scores.windows(2).all(|w| rank(w[0]) < rank(w[1])));
        assert_eq!(rank(0.0), rank(-0.0));
    }
}
