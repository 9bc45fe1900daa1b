//! What may come next in an answer that has to keep a form.

use crate::Result;
use std::fmt::Debug;

/// Follows one answer. It is called from the thread that serves everybody, so it must be quick.
pub trait Guide: Send + Debug {
    /// The tokens that may come next, those that end the turn included if the answer may end here.
    ///
    /// # Errors
    /// The answer cannot go on.
    fn allowed(&mut self) -> Result<Allowed<'_>>;

    /// Goes on by a token that was allowed. True if the answer is complete: nothing may follow.
    ///
    /// # Errors
    /// The answer cannot go on.
    fn accept(&mut self, token: u32) -> Result<bool>;
}

/// A set of token ids: id `i` is bit `i % 32` of word `i / 32`.
#[derive(Clone, Copy, Debug)]
pub struct Allowed<'a>(pub &'a [u32]);

impl Allowed<'_> {
    /// Is it in the set?
    pub fn contains(self, id: u32) -> bool {
        self.0.get(id as usize / 32).is_some_and(|word| word >> (id % 32) & 1 == 1)
    }
}
