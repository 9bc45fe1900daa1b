//! The library of a group of emulators: sums in rank order, once all ranks have come.
#![allow(clippy::unwrap_used, reason = "a test's device: any failure is the test's")]

use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use half::bf16;
use shardwright_cuda::{Error, Result};
use shardwright_model::exec::Wire;

/// What all ranks of a group share.
pub(crate) struct Sums {
    round: Mutex<Round>,
    change: Condvar,
}

#[derive(Default)]
struct Round {
    parts: Vec<Option<Vec<u8>>>,
    /// The sum, and how many have yet to take it.
    sum: Option<(Vec<u8>, usize)>,
    given_up: bool,
}

impl Sums {
    pub(crate) fn new(ranks: usize) -> Arc<Sums> {
        let round = Round { parts: vec![None; ranks], ..Round::default() };
        Arc::new(Sums { round: Mutex::new(round), change: Condvar::new() })
    }

    /// Nobody waits any more.
    pub(crate) fn give_up(&self) {
        self.round.lock().unwrap().given_up = true;
        self.change.notify_all();
    }

    /// What all ranks' parts come to.
    pub(crate) fn of(&self, rank: usize, part: Vec<u8>, wire: Wire) -> Result<Vec<u8>> {
        // those of the round before may still be taking theirs
        let mut round = self.wait(rank, |round| round.sum.is_none())?;
        round.parts[rank] = Some(part);
        if round.parts.iter().all(Option::is_some) {
            let parts: Vec<Vec<u8>> = round.parts.iter_mut().map(|part| part.take().unwrap()).collect();
            round.sum = Some((added(&parts, wire), parts.len()));
            self.change.notify_all();
        }
        drop(round);
        let mut round = self.wait(rank, |round| round.sum.is_some())?;
        let (sum, left) = round.sum.as_mut().unwrap();
        let sum = sum.clone();
        *left -= 1;
        if *left == 0 {
            round.sum = None;
            self.change.notify_all();
        }
        Ok(sum)
    }

    fn wait(&self, rank: usize, until: impl Fn(&Round) -> bool) -> Result<MutexGuard<'_, Round>> {
        let mut round = self.round.lock().unwrap();
        while !until(&round) && !round.given_up {
            round = self.change.wait(round).unwrap();
        }
        match round.given_up {
            true => Err(Error::GivenUp { rank }),
            false => Ok(round),
        }
    }
}

/// Each sum of two is rounded to what travels, as the library has it.
fn added(parts: &[Vec<u8>], wire: Wire) -> Vec<u8> {
    let mut sum = parts[0].clone();
    for part in &parts[1..] {
        match wire {
            Wire::F32 => {
                for (sum, x) in sum.chunks_exact_mut(4).zip(part.chunks_exact(4)) {
                    let [a, b] = [&*sum, x].map(|v| f32::from_le_bytes(v.try_into().unwrap()));
                    sum.copy_from_slice(&(a + b).to_le_bytes());
                }
            }
            Wire::Bf16 => {
                for (sum, x) in sum.chunks_exact_mut(2).zip(part.chunks_exact(2)) {
                    let [a, b] = [&*sum, x].map(|v| bf16::from_le_bytes([v[0], v[1]]).to_f32());
                    sum.copy_from_slice(&bf16::from_f32(a + b).to_le_bytes());
                }
            }
        }
    }
    sum
}
