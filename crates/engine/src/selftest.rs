//! Is what an executor computes of any use? A known text, twice by two paths, before anybody is served.
//!
//! - **Finite**: no row of either path meets a NaN or an infinity.
//! - **One answer**: the text in large pieces and in small ones, in other cache blocks, gives the same logits but for
//!   rounding. A wrong position, a wrong block or a wrong kernel for small steps shows here.
//! - **A language**: the text is plain English, and its perplexity must be below the square root of the vocabulary's
//!   size (at least 100); the demo model has 1.6, SmolLM2-135M 24. A model that has lost its mind is near the size itself.
//! - **No loop**: of the last [`TAIL`] tokens of a greedy continuation more than two are different.
//!
//! The last two are asked only of vocabularies of at least [`WORDS`] tokens: smaller ones belong to files made for
//! tests, which know no language.

use shardwright_model::exec::{BLOCK, ExecError, Executor, Limits, RowOutput, StepBatch, Want};
use std::collections::BTreeSet;
use std::fmt;

/// The known text: simple, of the kind that the demo model tells, too.
pub const TEXT: &str = "Adam was a kind elephant who lived in a small village. He liked warm soup more than anything \
else. He liked to play outside and to listen to the birds.\n\nOne evening, Adam found a small golden key near the \
well. He showed it to Oliver the wolf. \"We must find the door,\" said Oliver. They tried it on every door, but it \
did not fit.";

/// Vocabularies of so many tokens belong to models of a language.
pub const WORDS: usize = 1024;

/// Tokens of the continuation, and how many of the last of them are looked at.
const GREEDY: usize = 24;
const TAIL: usize = 16;

/// Small pieces.
const PIECE: usize = 3;

/// How far the two paths may be apart: root mean square of the differences over that of the logits.
const APART: f64 = 0.1;

/// What was found to be right.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// Of the text.
    pub perplexity: f64,
    /// How far the two paths are apart.
    pub apart: f64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "perplexity {:.2}, two paths {:.1e} apart", self.perplexity, self.apart)
    }
}

/// Why an executor must not serve.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Fault {
    /// There is nothing to test with.
    #[error("the text of the self-test has {0} tokens, but two are needed")]
    NoText(usize),
    /// NaN or infinity.
    #[error("the self-test met non-finite values (NaN or infinity), first in `{0}`")]
    NonFinite(String),
    /// The same text, two answers.
    #[error(
        "the self-test's text gives other logits in small pieces than in large ones: {0:.3} apart, at most {APART} is rounding"
    )]
    Apart(f64),
    /// It knows no language.
    #[error("the self-test's text has perplexity {found:.1}, a working model is below {most:.0}")]
    Perplexity {
        /// What was measured.
        found: f64,
        /// What is allowed.
        most: f64,
    },
    /// It says one thing for ever.
    #[error("the self-test's continuation is a loop: token ids {0:?}")]
    Loop(Vec<u32>),
    /// A row lacks what was asked for.
    #[error("a row of the self-test lacks its logits")]
    NoLogits,
    /// The executor is broken.
    #[error("the backend failed in the self-test: {0}")]
    Executor(#[from] ExecError),
}

/// Tests an executor whose cache nobody uses yet. `text` is [`TEXT`] in tokens, `ends` those that end a turn.
///
/// # Errors
/// What is wrong with it.
pub fn check(executor: &mut dyn Executor, text: &[u32], ends: &[u32]) -> Result<Report, Fault> {
    let limits = executor.limits();
    let room = limits.context.min(limits.blocks * BLOCK);
    let text = &text[..text.len().min(room)];
    if text.len() < 2 {
        return Err(Fault::NoText(text.len()));
    }
    // Half of the blocks each, where there are enough.
    let blocks: Vec<u32> = (0..limits.blocks as u32).collect();
    let mut turned = blocks.clone();
    turned.reverse();
    let large = logits(executor, text, &blocks, limits.rows)?;
    let small = logits(executor, text, &turned, PIECE.min(limits.rows))?;
    let apart = apart(&large, &small);
    if apart.is_nan() || apart > APART {
        return Err(Fault::Apart(apart));
    }
    let perplexity = perplexity(&large, text);
    if limits.vocab >= WORDS {
        let most = (limits.vocab as f64).sqrt().max(100.0);
        if perplexity.is_nan() || perplexity > most {
            return Err(Fault::Perplexity { found: perplexity, most });
        }
        let first = small.last().map_or(0, |row| best(row));
        no_loop(executor, &limits, text.len(), first, &turned, ends)?;
    }
    Ok(Report { perplexity, apart })
}

/// The logits of every token of a text, read in pieces.
fn logits(
    executor: &mut dyn Executor,
    text: &[u32],
    blocks: &[u32],
    piece: usize,
) -> Result<Vec<Vec<f32>>, Fault> {
    let mut all = Vec::new();
    for begin in (0..text.len()).step_by(piece) {
        let tokens = &text[begin..(begin + piece).min(text.len())];
        all.extend(step(executor, tokens, begin, blocks)?);
    }
    Ok(all)
}

fn step(
    executor: &mut dyn Executor,
    tokens: &[u32],
    begin: usize,
    blocks: &[u32],
) -> Result<Vec<Vec<f32>>, Fault> {
    let held = (begin + tokens.len()).div_ceil(BLOCK).min(blocks.len());
    let batch = StepBatch {
        tokens: tokens.to_vec(),
        positions: (begin as u32..).take(tokens.len()).collect(),
        sequences: vec![0; tokens.len()],
        tables: vec![blocks[..held].to_vec()],
        wants: vec![Want::Logits; tokens.len()],
        ..StepBatch::default()
    };
    let row = |output: RowOutput| match output {
        RowOutput::Logits(row) if row.iter().all(|l| l.is_finite()) => Ok(row),
        RowOutput::Logits(_) => Err(Fault::NonFinite("logits".into())),
        RowOutput::NonFinite { at } => Err(Fault::NonFinite(at)),
        _ => Err(Fault::NoLogits),
    };
    executor.step(&batch)?.rows.into_iter().map(row).collect()
}

fn apart(a: &[Vec<f32>], b: &[Vec<f32>]) -> f64 {
    let squares = |f: &dyn Fn(f32, f32) -> f64| -> f64 {
        a.iter().flatten().zip(b.iter().flatten()).map(|(x, y)| f(*x, *y).powi(2)).sum()
    };
    let difference = squares(&|x, y| f64::from(x) - f64::from(y));
    let size = squares(&|x, _| f64::from(x));
    if difference == 0.0 { 0.0 } else { (difference / size).sqrt() }
}

fn perplexity(rows: &[Vec<f32>], text: &[u32]) -> f64 {
    let surprise = |(row, next): (&Vec<f32>, &u32)| {
        let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = row.iter().map(|l| f64::from(l - most).exp()).sum();
        sum.ln() - f64::from(row.get(*next as usize).map_or(f32::NAN, |l| l - most))
    };
    let all: f64 = rows.iter().zip(&text[1..]).map(surprise).sum();
    (all / (text.len() - 1) as f64).exp()
}

fn best(row: &[f32]) -> u32 {
    let at = (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b]).then(b.cmp(a)));
    at.unwrap_or(0) as u32
}

/// Goes on greedily from `first` at position `at`. A model that ends its turn does not loop.
fn no_loop(
    executor: &mut dyn Executor,
    limits: &Limits,
    at: usize,
    first: u32,
    blocks: &[u32],
    ends: &[u32],
) -> Result<(), Fault> {
    let room = limits.context.min(limits.blocks * BLOCK) - at;
    let mut said = vec![first];
    while said.len() < GREEDY.min(room) {
        let last = said[said.len() - 1];
        if ends.contains(&last) {
            return Ok(());
        }
        let rows = step(executor, &[last], at + said.len() - 1, blocks)?;
        said.push(rows.last().map_or(0, |row| best(row)));
    }
    let tail = &said[said.len().saturating_sub(TAIL)..];
    match tail.len() < TAIL || tail.iter().collect::<BTreeSet<_>>().len() > 2 {
        true => Ok(()),
        false => Err(Fault::Loop(tail.to_vec())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardwright_model::exec::{Probe, StepOutput};

    /// Likeliest is what `next` says, for a token at a position; all else is behind.
    struct Canned<F> {
        vocab: usize,
        next: F,
    }

    impl<F: Fn(u32, usize, usize) -> (u32, f32) + Send> Executor for Canned<F> {
        fn limits(&self) -> Limits {
            Limits { vocab: self.vocab, rows: 32, blocks: 8, context: 512, width: 1, drafts: false, takes: 0 }
        }

        fn step_probed(&mut self, b: &StepBatch, _: Option<&mut dyn Probe>) -> Result<StepOutput, ExecError> {
            let row = |i: usize| {
                let mut row = vec![0.0; self.vocab];
                let (next, logit) = (self.next)(b.tokens[i], b.positions[i] as usize, b.rows());
                row[next as usize] = logit;
                RowOutput::Logits(row)
            };
            Ok(StepOutput { rows: (0..b.rows()).map(row).collect(), hidden: Vec::new() })
        }
    }

    fn run(vocab: usize, next: impl Fn(u32, usize, usize) -> (u32, f32) + Send) -> Result<Report, Fault> {
        let text: Vec<u32> = (0..90).collect();
        check(&mut Canned { vocab, next }, &text, &[7])
    }

    #[test]
    fn faults_are_told_apart() {
        let good = run(2000, |token, _, _| (token + 1, 20.0)).unwrap();
        assert!(good.perplexity < 1.01 && good.apart == 0.0, "{good:?}");
        assert!(matches!(
            run(2000, |t, p, _| (t + 1, if p == 50 { f32::NAN } else { 20.0 })),
            Err(Fault::NonFinite(_))
        ));
        assert!(matches!(run(2000, |t, _, rows| (t + u32::from(rows > 5), 20.0)), Err(Fault::Apart(_))));
        assert!(matches!(run(2000, |_, _, _| (3, 20.0)), Err(Fault::Perplexity { .. })));
        assert!(matches!(run(2000, |t, _, _| (if t < 89 { t + 1 } else { 89 }, 20.0)), Err(Fault::Loop(_))));
        // the end of the turn is no loop
        assert!(run(2000, |t, _, _| (if t < 89 { t + 1 } else { 7 }, 20.0)).is_ok());
        // a small vocabulary knows no language
        assert!(run(1000, |_, _, _| (3, 20.0)).is_ok());
        assert_eq!(
            check(&mut Canned { vocab: 10, next: |t, _, _| (t, 1.0) }, &[1], &[]),
            Err(Fault::NoText(1))
        );
    }
}
