//! Tokens of an answer to what a client sees: nothing, text, or reasoning, content and tool calls told apart.

use crate::request::Finish;
use shardwright_text::reply::{self, End, Event, Message, ReplyReader, Syntax};
use shardwright_text::stream::StreamDecoder;
use shardwright_text::tokenizer::Tokenizer;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Reads the tokens of one answer.
#[derive(Debug, Default)]
pub struct Reader(Form);

#[derive(Debug, Default)]
enum Form {
    /// Nobody wants text.
    #[default]
    Ids,
    /// All is content.
    Text { tokenizer: Arc<Tokenizer>, decoder: StreamDecoder, content: String },
    /// A chat model's reply. `marks` are the ids that its syntax gives a meaning.
    Reply { tokenizer: Arc<Tokenizer>, marks: BTreeSet<u32>, reader: Box<ReplyReader> },
}

impl Reader {
    /// Makes no text.
    pub fn ids() -> Reader {
        Reader(Form::Ids)
    }

    /// Plain text that ends before the first of `stops`.
    pub fn text(tokenizer: Arc<Tokenizer>, stops: &[String]) -> Reader {
        Reader(Form::Text { tokenizer, decoder: StreamDecoder::new(stops), content: String::new() })
    }

    /// A reply in a syntax, to a rendered prompt.
    pub fn reply(tokenizer: Arc<Tokenizer>, syntax: Syntax, prompt: &str, options: reply::Options) -> Reader {
        let marks = syntax.marks().filter_map(|mark| tokenizer.token_id(mark)).collect();
        let reader = Box::new(ReplyReader::new(syntax, prompt, options));
        Reader(Form::Reply { tokenizer, marks, reader })
    }

    /// The next token; what is certain with it.
    pub fn push(&mut self, token: u32) -> Vec<Event> {
        match &mut self.0 {
            Form::Ids => Vec::new(),
            Form::Text { tokenizer, decoder, content } => {
                let text = decoder.push(shown(tokenizer, token));
                keep(content, text)
            }
            Form::Reply { tokenizer, marks, reader } => {
                let is_mark = marks.contains(&token);
                let bytes = if is_mark { tokenizer.token_bytes(token) } else { shown(tokenizer, token) };
                reader.push(bytes, is_mark)
            }
        }
    }

    /// From now on, do stop strings that become complete end the answer? At first they do.
    pub fn heed_stops(&mut self, heed: bool) {
        match &mut self.0 {
            Form::Ids => {}
            Form::Text { decoder, .. } => decoder.heed(heed),
            Form::Reply { reader, .. } => reader.heed(heed),
        }
    }

    /// Has a stop string ended the answer?
    pub fn stopped(&self) -> bool {
        match &self.0 {
            Form::Ids => false,
            Form::Text { decoder, .. } => decoder.stopped().is_some(),
            Form::Reply { reader, .. } => reader.stopped().is_some(),
        }
    }

    /// The last events, and the whole message.
    pub fn finish(self, finish: Finish) -> (Vec<Event>, Message) {
        let cut = !matches!(finish, Finish::EndToken | Finish::StopString);
        match self.0 {
            Form::Ids => (Vec::new(), Message { finish: ended(cut), ..Message::default() }),
            Form::Text { mut decoder, mut content, .. } => {
                let text = decoder.finish();
                let events = keep(&mut content, text);
                let stop = decoder.stopped().map(str::to_owned);
                let finish = ended(cut && stop.is_none());
                (events, Message { content, finish, stop, ..Message::default() })
            }
            Form::Reply { reader, .. } => reader.finish(if cut { End::Limit } else { End::Turn }),
        }
    }
}

fn ended(cut: bool) -> reply::Finish {
    if cut { reply::Finish::Length } else { reply::Finish::Stop }
}

/// Control tokens are no text.
fn shown(tokenizer: &Tokenizer, token: u32) -> &[u8] {
    if tokenizer.is_control(token) { b"" } else { tokenizer.token_bytes(token) }
}

fn keep(content: &mut String, text: String) -> Vec<Event> {
    content.push_str(&text);
    if text.is_empty() { Vec::new() } else { vec![Event::Content(text)] }
}
