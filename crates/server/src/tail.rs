//! How a conversation ends in the prompt: by opening the model's turn, as it is, or in the middle of its last message.

use crate::error::ApiError;
use serde_json::Value;
use shardwright_text::template::Segment;

/// The end of the prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tail {
    /// The model's turn is opened.
    #[default]
    Opened,
    /// The template writes what it writes.
    Plain,
    /// The last message is left open: the model continues it.
    Continued,
}

impl Tail {
    /// By vLLM's two fields.
    pub(crate) fn of(
        add_generation_prompt: Option<bool>,
        continue_final_message: Option<bool>,
    ) -> Result<Tail, ApiError> {
        match (add_generation_prompt, continue_final_message.unwrap_or(false)) {
            (Some(true), true) => {
                let why = "`continue_final_message` leaves the last message open, so `add_generation_prompt` cannot be true";
                Err(ApiError::field("continue_final_message", why))
            }
            (_, true) => Ok(Tail::Continued),
            (Some(false), false) => Ok(Tail::Plain),
            (None | Some(true), false) => Ok(Tail::Opened),
        }
    }
}

/// Takes away what the template writes after the last message. As `transformers` does it: that message is where its
/// text is found last, with or without the white space around it.
pub(crate) fn leave_open(segments: &mut Vec<Segment>, messages: &[Value]) -> Result<(), ApiError> {
    let wrong = |why: &str| ApiError::field("continue_final_message", format!("the last message {why}"));
    let said = messages.last().and_then(|m| text(&m["content"])).unwrap_or_default();
    if said.trim().is_empty() {
        return Err(wrong("has no text that could be continued"));
    }
    let prompt: String = segments.iter().map(|s| s.text.as_str()).collect();
    let at = prompt.rfind(said.trim());
    let at = at.ok_or_else(|| wrong("cannot be continued: the chat template does not write it as it is"))?;
    let whole = said.trim_start();
    let length = if prompt[at..].starts_with(whole) { whole.len() } else { said.trim().len() };
    let mut left = at + length;
    segments.retain_mut(|segment| {
        let keep = left.min(segment.text.len());
        segment.text.truncate(keep);
        left -= keep;
        keep > 0
    });
    Ok(())
}

/// Content, or the last of its parts that has text.
fn text(content: &Value) -> Option<&str> {
    let parts = content.as_array().into_iter().flatten();
    content.as_str().or_else(|| parts.rev().find_map(|part| part.get("text")?.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn two_fields_say_how_it_ends() {
        let check = |open, continues, expected: Option<Tail>| {
            assert_eq!(Tail::of(open, continues).ok(), expected, "{open:?} {continues:?}");
        };
        check(None, None, Some(Tail::Opened));
        check(Some(true), Some(false), Some(Tail::Opened));
        check(Some(false), None, Some(Tail::Plain));
        check(None, Some(true), Some(Tail::Continued));
        check(Some(false), Some(true), Some(Tail::Continued));
        check(Some(true), Some(true), None);
    }

    #[test]
    fn the_prompt_ends_within_the_last_message() {
        let check = |content: Value, prompt: &[(&str, bool)], expected: Option<&[(&str, bool)]>| {
            let segment =
                |(text, trusted): &(&str, bool)| Segment { text: (*text).to_owned(), trusted: *trusted };
            let mut segments: Vec<Segment> = prompt.iter().map(segment).collect();
            let done = leave_open(&mut segments, &[json!({"role": "assistant", "content": content})]);
            let expected = expected.map(|e| e.iter().map(segment).collect::<Vec<_>>());
            assert_eq!(done.ok().map(|()| segments), expected, "{content}");
        };
        check(json!("ab"), &[("<a>ab<e>", true)], Some(&[("<a>ab", true)]));
        check(json!("ab"), &[("ab<a>ab<e>ab!", true)], Some(&[("ab<a>ab<e>ab", true)]));
        check(json!(" ab \n"), &[("<a>ab \n<e>", true)], Some(&[("<a>ab \n", true)]));
        check(json!(" ab \n"), &[("<a>ab<e>", true)], Some(&[("<a>ab", true)]));
        let parts = json!([{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]);
        check(parts, &[("<a>xy<e>", true)], Some(&[("<a>xy", true)]));
        let marked = [("<a>a", true), ("<", false), ("b", true)];
        check(json!("a<b"), &[marked[0], marked[1], ("b<e>", true), ("<", false)], Some(&marked));
        for none in [json!(""), json!(" "), json!(null), json!([])] {
            check(none, &[("<a><e>", true)], None);
        }
        check(json!("gone"), &[("<a><e>", true)], None);
    }
}
