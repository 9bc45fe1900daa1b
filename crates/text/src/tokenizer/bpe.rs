//! Byte-level BPE (`gpt2` in files): split, spell bytes as tokens, merge by rank.

use hashbrown::HashMap;
use shardwright_gguf::{Meta, Strings};

use super::bytes::spell;
use super::merge::{Part, merge};
use super::pre::{Rules, Splitter};
use super::vocab::{Kind, Vocab};
use crate::error::{Error, Result};

const MERGES: &str = "tokenizer.ggml.merges";

/// Without merges in the file, tokens longer than this are found as whole pieces only. It bounds the time to load.
const LONGEST_DERIVED: usize = 512;

/// Ranks and results of pairs of tokens.
type Pairs = HashMap<u64, (u32, u32)>;

/// Two ids as one number, which is quicker to look up.
fn pair(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

/// The merge table and the splitter of a file.
#[derive(Debug)]
pub(crate) struct Bpe {
    splitter: Splitter,
    singles: Vec<Option<u32>>,
    pairs: Pairs,
    ignore_merges: bool,
    longest: usize,
}

impl Bpe {
    /// Builds the table; merges that cannot be used are left out and counted in the vocabulary's warnings.
    pub(crate) fn from_meta(meta: &Meta, rules: &Rules, vocab: &mut Vocab) -> Result<Bpe> {
        let pairs = match meta.may_strings(MERGES)? {
            Some(merges) => listed(merges, vocab),
            None if rules.ranks_are_ids => derived(vocab),
            None => {
                return Err(Error::key(MERGES, "is missing; this kind of tokenizer cannot work without it"));
            }
        };
        let singles: Vec<_> = (0..=255u8).map(|b| vocab.piece(spell(&[b]).as_bytes())).collect();
        // These bytes occur in no UTF-8 text.
        let missing = (0..=255u8)
            .filter(|b| !matches!(b, 0xc0 | 0xc1 | 0xf5..))
            .filter(|&b| singles[b as usize].is_none());
        let missing = missing.count();
        if missing > 0 {
            vocab.warnings.push(format!(
                "the vocabulary has no token for {missing} bytes: some texts cannot be encoded"
            ));
        }
        let splitter = Splitter::new(rules);
        Ok(Bpe { splitter, singles, pairs, ignore_merges: rules.ignore_merges, longest: vocab.longest() })
    }

    /// Appends the tokens of a text that holds no markers.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, out: &mut Vec<u32>) -> Result<()> {
        self.splitter.split(text, &mut |piece| self.encode_piece(vocab, piece, out))
    }

    fn encode_piece(&self, vocab: &Vocab, piece: &str, out: &mut Vec<u32>) -> Result<()> {
        if self.ignore_merges
            && piece.len() <= self.longest
            && let Some(id) = vocab.piece(spell(piece.as_bytes()).as_bytes())
        {
            out.push(id);
            return Ok(());
        }
        let part = |(start, byte): (usize, u8)| match self.singles[byte as usize] {
            Some(id) => Ok(Part { start, len: 1, id: Some(id) }),
            None => Err(Error::NoToken { byte }),
        };
        let mut parts = piece.bytes().enumerate().map(part).collect::<Result<Vec<Part>>>()?;
        merge(&mut parts, |l, r| self.pairs.get(&pair(l.id?, r.id?)).copied());
        out.extend(parts.iter().filter_map(|p| p.id));
        Ok(())
    }
}

/// The table of a list of merges, whose order is their rank.
fn listed(merges: &Strings, vocab: &mut Vocab) -> Pairs {
    let mut pairs = HashMap::with_capacity(merges.len());
    let mut dropped = 0;
    let mut joint = Vec::new();
    for (rank, line) in (0u32..).zip(merges.iter()) {
        let entry = (|| {
            // The left part is never empty, so a space at index 0 belongs to it.
            let cut = 1 + line.get(1..)?.iter().position(|&b| b == b' ')?;
            let (left, right) = (&line[..cut], &line[cut + 1..]);
            joint.clear();
            joint.extend_from_slice(left);
            joint.extend_from_slice(right);
            Some((pair(vocab.piece(left)?, vocab.piece(right)?), (rank, vocab.piece(&joint)?)))
        })();
        match entry {
            Some((key, result)) => {
                pairs.entry(key).or_insert(result);
            }
            None => dropped += 1,
        }
    }
    if dropped > 0 {
        vocab.warnings.push(format!(
            "`{MERGES}`: {dropped} of {} merges left out, their parts or result are not in the vocabulary",
            merges.len()
        ));
    }
    pairs
}

/// The table of a vocabulary whose ids are ranks: any two tokens whose joint text is a token.
fn derived(vocab: &Vocab) -> Pairs {
    let mut pairs = HashMap::new();
    for (id, kind, text) in vocab.iter() {
        if kind != Kind::Normal || text.len() > LONGEST_DERIVED {
            continue;
        }
        for cut in 1..text.len() {
            let (left, right) = text.split_at(cut);
            if let (Some(l), Some(r)) = (vocab.piece(left), vocab.piece(right)) {
                pairs.insert(pair(l, r), (id, id));
            }
        }
    }
    pairs
}
