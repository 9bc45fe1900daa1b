//! Choices for a generator or an engine.

use std::time::Duration;

/// What can be chosen.
#[derive(Clone, Debug)]
pub struct Options {
    /// Most requests that wait in an engine; one more is refused.
    pub queue: usize,
    /// Most requests that run at a time; never more than the executor has rows.
    pub sequences: usize,
    /// Most rows in a step, for those who want prompts cut finer than the executor needs.
    pub rows: usize,
    /// Find blocks of the cache again by their content. Answers are the same either way.
    pub prefix_cache: bool,
    /// How much longer a step with answers may take because prompts are read beside them.
    pub prompt_time: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            queue: 1024,
            sequences: usize::MAX,
            rows: usize::MAX,
            prefix_cache: true,
            prompt_time: Duration::from_millis(50),
        }
    }
}
