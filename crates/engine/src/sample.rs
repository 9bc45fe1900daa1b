//! From logits to a token: seeded and pure.
//!
//! The order is fixed and the same for every backend:
//! 1. `logit_bias` is added (clamped to ±100); `never` tokens are excluded, those that the request's guide forbids, and
//!    end tokens as long as the answer must not end.
//! 2. `repetition_penalty` p on every token of prompt and answer: a positive logit is divided by p, another multiplied.
//! 3. `presence_penalty` and `frequency_penalty` x count are subtracted, for tokens of the answer only.
//! 4. At temperature 0 the largest logit wins (the lowest id among equals), and the rest of the list does not apply.
//! 5. `top_k`: the k largest stay.
//! 6. `top_p`: of their distribution the fewest largest that reach p together stay; at least one does.
//! 7. `min_p`: those at least p times as likely as the likeliest stay.
//! 8. Temperature, then the draw.
//!
//! So 5 to 7 look at the model's own distribution, as in llama.cpp: a high temperature never lets in what `min_p` cut.
//! The draw depends on the seed and on how many tokens of the answer precede it, on nothing else.
//! Logarithmic probabilities are those of the model itself, before step 1.

use crate::{Error, Result};
use shardwright_model::exec::{CANDIDATES, ExecError, RowOutput, Want};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Most that a bias adds or subtracts.
const BIAS_LIMIT: f32 = 100.0;

/// Logits are 32-bit numbers: a probability that misses its limit by less counts as reaching it.
const ROUNDING: f64 = 1e-6;

/// How to choose. The default is greedy with everything else off.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// 0 = always the likeliest.
    pub temperature: f32,
    /// 0 = off.
    pub top_k: usize,
    /// 1 = off.
    pub top_p: f32,
    /// 0 = off.
    pub min_p: f32,
    /// 1 = off. Counts the prompt too.
    pub repetition_penalty: f32,
    /// 0 = off. Only for tokens of the answer.
    pub presence_penalty: f32,
    /// 0 = off. Only for tokens of the answer.
    pub frequency_penalty: f32,
    /// Added to the logits of these ids.
    pub logit_bias: BTreeMap<u32, f32>,
    /// Ids that are never chosen, such as the padding of a vocabulary.
    pub never: BTreeSet<u32>,
    /// Of the draws.
    pub seed: u64,
    /// Report the logarithmic probabilities of the chosen token and of so many likeliest.
    pub logprobs: Option<usize>,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: BTreeMap::new(),
            never: BTreeSet::new(),
            seed: 0,
            logprobs: None,
        }
    }
}

/// The tokens so far, as far as penalties and draws need to know.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Ids of the prompt and the answer, with their number in the answer. None: no penalty asks for them.
    counts: Option<HashMap<u32, u32>>,
    answered: u64,
}

/// A token and, if asked for, how likely it was.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The id.
    pub token: u32,
    /// By the model's own distribution.
    pub logprobs: Option<Logprobs>,
}

/// Natural logarithms of probabilities.
#[derive(Clone, Debug, PartialEq)]
pub struct Logprobs {
    /// Of the chosen token.
    pub chosen: f32,
    /// The likeliest ids, best first.
    pub top: Vec<(u32, f32)>,
}

impl History {
    /// Nothing answered yet.
    pub fn new(sampling: &Sampling, prompt: &[u32]) -> History {
        let counts = || prompt.iter().map(|id| (*id, 0)).collect();
        History { counts: sampling.penalizes().then(counts), answered: 0 }
    }

    /// One more token of the answer.
    pub fn push(&mut self, token: u32) {
        if let Some(counts) = &mut self.counts {
            *counts.entry(token).or_insert(0) += 1;
        }
        self.answered += 1;
    }
}

/// An id with its logit.
type Scored = (u32, f64);

/// By falling logit, then rising id.
fn best_first(a: &Scored, b: &Scored) -> Ordering {
    b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
}

impl Sampling {
    /// Are all numbers in their ranges?
    ///
    /// # Errors
    /// Names the first that is not.
    pub fn check(&self) -> Result<()> {
        let rows = [
            ("temperature", self.temperature, self.temperature >= 0.0, "a number of at least 0"),
            ("top_p", self.top_p, (0.0..=1.0).contains(&self.top_p), "between 0 and 1"),
            ("min_p", self.min_p, (0.0..=1.0).contains(&self.min_p), "between 0 and 1"),
            ("repetition_penalty", self.repetition_penalty, self.repetition_penalty > 0.0, "above 0"),
            ("presence_penalty", self.presence_penalty, true, "a number"),
            ("frequency_penalty", self.frequency_penalty, true, "a number"),
        ];
        let biases = self.logit_bias.values().map(|b| ("logit_bias", *b, true, "a number"));
        match rows.into_iter().chain(biases).find(|(_, x, fits, _)| !(*fits && x.is_finite())) {
            Some((name, found, _, wanted)) => {
                Err(Error::Parameter { name, found: found.to_string(), wanted })
            }
            None => Ok(()),
        }
    }

    /// What an executor should answer for [`Sampling::choose`] to be exact: candidates are enough where no logit is
    /// moved and the choice is among few.
    pub fn want(&self) -> Want {
        let few = (1..=CANDIDATES).contains(&self.among());
        match few && !self.moves_logits() && self.logprobs.unwrap_or(0) <= CANDIDATES {
            true => Want::Candidates,
            false => Want::Logits,
        }
    }

    /// How many of the best are looked at; 0 = all.
    fn among(&self) -> usize {
        if self.is_greedy() { 1 } else { self.top_k }
    }

    fn is_greedy(&self) -> bool {
        self.temperature <= 0.0
    }

    fn moves_logits(&self) -> bool {
        !self.logit_bias.is_empty() || self.penalizes()
    }

    fn penalizes(&self) -> bool {
        self.repetition_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }

    /// The next token after `history`. None if excluded ids left too few candidates: then ask for all logits.
    ///
    /// # Errors
    /// The row is not finite, or no token is left, or the row is not what [`Sampling::want`] asks for.
    pub fn choose(&self, row: &RowOutput, history: &History) -> Result<Option<Choice>> {
        self.choose_among(row, history, |_| true)
    }

    /// The same among the tokens that are allowed.
    pub(crate) fn choose_among(
        &self,
        row: &RowOutput,
        history: &History,
        allowed: impl Fn(u32) -> bool,
    ) -> Result<Option<Choice>> {
        let may = |id: u32, logit: f64| logit.is_finite() && !self.never.contains(&id) && allowed(id);
        if let RowOutput::Candidates { ids, logits, .. } = row
            && self.is_greedy()
            && self.logprobs.is_none()
            && self.want() == Want::Candidates
        {
            // Best first, so that nothing is to be sorted or kept.
            let best = ids.iter().zip(logits).find(|(id, logit)| may(**id, f64::from(**logit)));
            return Ok(best.map(|(id, _)| Choice { token: *id, logprobs: None }));
        }
        let (mut pool, log_sum_exp) = match row {
            RowOutput::NonFinite { at } => return Err(Error::non_finite(at)),
            RowOutput::Logits(logits) => (self.moved(logits, history)?, None),
            RowOutput::Candidates { ids, logits, log_sum_exp } if self.want() == Want::Candidates => {
                (ids.iter().copied().zip(logits.iter().map(|l| f64::from(*l))).collect(), Some(*log_sum_exp))
            }
            _ => return Err(ExecError(format!("a row lacks what was asked for: {:?}", self.want())).into()),
        };
        let answered = pool.len();
        pool.retain(|(id, logit)| may(*id, *logit));
        if log_sum_exp.is_some() && pool.len() < answered.min(self.among()) {
            return Ok(None);
        }
        let best = *pool.iter().min_by(|a, b| best_first(a, b)).ok_or(Error::NothingLeft)?;
        let token = match self.is_greedy() {
            true => best.0,
            false => self.draw(&self.cut(pool, best.1), best.1, history.answered),
        };
        let logprobs = self.logprobs.map(|n| logprobs(row, log_sum_exp, token, n));
        Ok(Some(Choice { token, logprobs }))
    }

    /// All logits after bias and penalties.
    fn moved(&self, logits: &[f32], history: &History) -> Result<Vec<Scored>> {
        if logits.iter().any(|l| l.is_nan() || *l == f32::INFINITY) {
            return Err(Error::non_finite("logits"));
        }
        let mut pool: Vec<Scored> = (0..).zip(logits.iter().map(|l| f64::from(*l))).collect();
        for (id, bias) in &self.logit_bias {
            if let Some((_, logit)) = pool.get_mut(*id as usize) {
                *logit += f64::from(bias.clamp(-BIAS_LIMIT, BIAS_LIMIT));
            }
        }
        let [repetition, presence, frequency] =
            [self.repetition_penalty, self.presence_penalty, self.frequency_penalty].map(f64::from);
        for (id, count) in history.counts.iter().flatten() {
            if let Some((_, logit)) = pool.get_mut(*id as usize) {
                *logit = if *logit > 0.0 { *logit / repetition } else { *logit * repetition };
                if *count > 0 {
                    *logit -= presence + frequency * f64::from(*count);
                }
            }
        }
        Ok(pool)
    }

    /// Steps 5 to 7; `best` is the largest logit.
    fn cut(&self, mut pool: Vec<Scored>, best: f64) -> Vec<Scored> {
        if self.top_k > 0 {
            keep_best(&mut pool, self.top_k);
        }
        if self.top_p < 1.0 {
            keep_nucleus(&mut pool, best, f64::from(self.top_p));
        }
        if self.min_p > 0.0 {
            let least = best + f64::from(self.min_p).ln() - ROUNDING;
            pool.retain(|(_, logit)| *logit >= least);
        }
        pool
    }

    /// One of `pool`, by its probability at this temperature.
    fn draw(&self, pool: &[Scored], best: f64, step: u64) -> u32 {
        let temperature = f64::from(self.temperature);
        let weight = |(_, logit): &Scored| ((logit - best) / temperature).exp();
        let mut left = uniform(self.seed, step) * pool.iter().map(weight).sum::<f64>();
        let hit = pool.iter().find(|scored| {
            left -= weight(scored);
            left < 0.0
        });
        // Rounding may leave a rest after the last one.
        hit.or(pool.last()).expect("the likeliest always stays").0
    }
}

/// Cuts to the `n` best, sorted.
fn keep_best(pool: &mut Vec<Scored>, n: usize) {
    if n < pool.len() {
        pool.select_nth_unstable_by(n, best_first);
        pool.truncate(n);
    }
    pool.sort_unstable_by(best_first);
}

/// Cuts to the fewest best that have probability `p` together, sorted.
fn keep_nucleus(pool: &mut Vec<Scored>, best: f64, p: f64) {
    let weight = |(_, logit): &Scored| (logit - best).exp();
    let enough = (p - ROUNDING) * pool.iter().map(weight).sum::<f64>();
    // Nearly always a few hundred hold it; sorting all of a vocabulary would take longer than the rest together.
    let mut looked = 4 * CANDIDATES;
    loop {
        let mut head = pool.clone();
        keep_best(&mut head, looked);
        let mut sum = 0.0;
        let reached = head.iter().position(|scored| {
            sum += weight(scored);
            sum >= enough
        });
        if reached.is_some() || looked >= pool.len() {
            head.truncate(reached.map_or(head.len(), |i| i + 1));
            *pool = head;
            return;
        }
        looked *= 16;
    }
}

/// How likely a token and the `n` likeliest are. `log_sum_exp` is known where not all logits are.
pub(crate) fn logprobs(row: &RowOutput, log_sum_exp: Option<f32>, token: u32, n: usize) -> Logprobs {
    let mut all: Vec<Scored> = match row {
        RowOutput::Logits(logits) => (0..).zip(logits.iter().map(|l| f64::from(*l))).collect(),
        RowOutput::Candidates { ids, logits, .. } => {
            ids.iter().copied().zip(logits.iter().map(|l| f64::from(*l))).collect()
        }
        RowOutput::Nothing | RowOutput::NonFinite { .. } => Vec::new(),
    };
    let total = log_sum_exp.map_or_else(|| sum_exp(&all), f64::from);
    let of = |logit: f64| (logit - total) as f32;
    let chosen = all.iter().find(|(id, _)| *id == token).map_or(f32::NEG_INFINITY, |s| of(s.1));
    keep_best(&mut all, n);
    Logprobs { chosen, top: all.iter().map(|(id, logit)| (*id, of(*logit))).collect() }
}

/// Logarithm of the sum of the exponentials.
fn sum_exp(all: &[Scored]) -> f64 {
    let best = all.iter().map(|s| s.1).fold(f64::NEG_INFINITY, f64::max);
    best + all.iter().map(|s| (s.1 - best).exp()).sum::<f64>().ln()
}

/// The `step`-th draw of `seed`, in [0, 1): SplitMix64 (Steele, Lea, Flood 2014) used as a function of its counter.
fn uniform(seed: u64, step: u64) -> f64 {
    const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
    let start = mix(seed.wrapping_add(GAMMA));
    let bits = mix(start.wrapping_add(step.wrapping_add(1).wrapping_mul(GAMMA)));
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
