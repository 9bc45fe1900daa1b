//! How many tokens a request took.

use serde::Serialize;
use shardwright_text::reply::Event;
use utoipa::ToSchema;

/// Tokens of a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct Usage {
    /// Of the prompt.
    pub prompt_tokens: usize,
    /// Of all answers.
    pub completion_tokens: usize,
    /// Both.
    pub total_tokens: usize,
    /// About the prompt.
    pub prompt_tokens_details: PromptDetails,
    /// About the answers.
    pub completion_tokens_details: CompletionDetails,
}

/// About a prompt's tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct PromptDetails {
    /// Found in the cache.
    pub cached_tokens: usize,
}

/// About the answers' tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct CompletionDetails {
    /// Of the thoughts before the answer.
    pub reasoning_tokens: usize,
}

impl Usage {
    /// Of these parts.
    pub fn new(prompt: usize, cached: usize, answered: usize, reasoning: usize) -> Usage {
        Usage {
            prompt_tokens: prompt,
            completion_tokens: answered,
            total_tokens: prompt + answered,
            prompt_tokens_details: PromptDetails { cached_tokens: cached },
            completion_tokens_details: CompletionDetails { reasoning_tokens: reasoning },
        }
    }
}

/// Counts the tokens of an answer that belong to its thoughts: all before the first that shows anything else.
#[derive(Clone, Debug, Default)]
pub(crate) struct Thoughts {
    tokens: usize,
    any: bool,
    over: bool,
}

impl Thoughts {
    /// One more token, with the text that came of it.
    pub(crate) fn token(&mut self, events: &[Event]) {
        self.any |= events.iter().any(|e| matches!(e, Event::Reasoning(_)));
        self.over |= events.iter().any(|e| !matches!(e, Event::Reasoning(_)));
        self.tokens += usize::from(!self.over);
    }

    /// How many there were.
    pub(crate) fn count(&self) -> usize {
        if self.any { self.tokens } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thoughts_end_where_the_answer_begins() {
        let check = |events: &[&[Event]], expected: usize| {
            let mut thoughts = Thoughts::default();
            events.iter().for_each(|e| thoughts.token(e));
            assert_eq!(thoughts.count(), expected, "{events:?}");
        };
        let (think, say) = (Event::Reasoning("a".into()), Event::Content("b".into()));
        check(&[], 0);
        check(&[std::slice::from_ref(&say), &[]], 0);
        check(&[&[], std::slice::from_ref(&think), &[], std::slice::from_ref(&say)], 3);
        let thinks = std::slice::from_ref(&think);
        check(&[thinks, thinks], 2);
    }
}
