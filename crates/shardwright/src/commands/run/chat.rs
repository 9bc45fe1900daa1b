//! The interactive chat: lines, commands, history.

use super::paint::Screen;
use super::session::{Session, Speed};
use anyhow::Context;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use serde_json::{Value as Json, json};
use shardwright_engine::request::Finish;
use std::io::Write;

const HELP: &str = "\
/help          this text
/clear         forget the conversation
/system TEXT   what the model is told before the conversation; without TEXT, nothing
/save FILE     write the conversation as JSON
/stats         how fast the last answer was
A \\ at the end of a line continues it; // at the beginning sends a / .
Ctrl-C stops an answer; at the prompt, Ctrl-C twice or Ctrl-D ends the program.";

/// A conversation.
struct Chat<'a> {
    session: &'a mut Session,
    system: Option<String>,
    messages: Vec<Json>,
    last: Option<Speed>,
}

/// Reads and answers until the user leaves.
pub(super) fn chat(session: &mut Session, system: Option<String>) -> anyhow::Result<()> {
    if !session.has_template() {
        session.templated(&[])?; // says why not
    }
    let mut chat = Chat { session, system, messages: Vec::new(), last: None };
    let mut editor = DefaultEditor::new().context("cannot read from this terminal")?;
    let mut leaving = false;
    say("Type a message, or /help.")?;
    loop {
        match read(&mut editor) {
            Ok(line) if line.trim().is_empty() => {}
            Ok(line) => {
                // A line that the editor cannot keep is no reason to stop.
                let _ = editor.add_history_entry(&line);
                chat.take(line.trim())?;
            }
            Err(ReadlineError::Interrupted) if leaving => return Ok(()),
            Err(ReadlineError::Interrupted) => {
                say("Ctrl-C again ends the program.")?;
                leaving = true;
                continue;
            }
            Err(ReadlineError::Eof) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
        leaving = false;
    }
}

/// One message: a line, and those that continue it.
fn read(editor: &mut DefaultEditor) -> rustyline::Result<String> {
    let mut text = editor.readline("> ")?;
    while let Some(begun) = text.strip_suffix('\\') {
        text = format!("{begun}\n{}", editor.readline(". ")?);
    }
    Ok(text)
}

fn say(text: &str) -> std::io::Result<()> {
    writeln!(std::io::stdout(), "{text}")
}

impl Chat<'_> {
    fn take(&mut self, line: &str) -> anyhow::Result<()> {
        let Some(command) = line.strip_prefix('/').filter(|rest| !rest.starts_with('/')) else {
            return self.answer(line.strip_prefix('/').unwrap_or(line));
        };
        let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        let rest = rest.trim();
        match (name, rest) {
            ("help", "") => say(HELP)?,
            ("clear", "") => {
                self.messages.clear();
                say("The conversation is forgotten.")?;
            }
            ("system", text) => {
                self.system = Some(text.to_owned()).filter(|t| !t.is_empty());
                say("It applies from the next message on.")?;
            }
            ("save", "") => say("/save needs the name of a file.")?,
            ("save", file) => match self.save(file) {
                Ok(n) => say(&format!("{n} messages are in {file}."))?,
                Err(e) => say(&format!("{file}: {e}"))?,
            },
            ("stats", "") => match &self.last {
                Some(speed) => say(&speed.to_string())?,
                None => say("Nothing has been answered yet.")?,
            },
            _ => say(&format!("There is no command /{command}; /help lists them."))?,
        }
        Ok(())
    }

    /// What the model sees.
    fn conversation(&self) -> Vec<Json> {
        let system = self.system.iter().map(|s| json!({ "role": "system", "content": s }));
        system.chain(self.messages.iter().cloned()).collect()
    }

    fn save(&self, file: &str) -> std::io::Result<usize> {
        let all = self.conversation();
        std::fs::write(file, serde_json::to_string_pretty(&all)? + "\n")?;
        Ok(all.len())
    }

    /// An answer that fails leaves the conversation as it was.
    fn answer(&mut self, text: &str) -> anyhow::Result<()> {
        self.messages.push(json!({ "role": "user", "content": text }));
        let mut screen = Screen::stdout();
        let answered =
            self.session.templated(&self.conversation()).and_then(|p| self.session.answer(p, &mut screen));
        match answered {
            Err(e) if e.is::<std::io::Error>() => return Err(e),
            Err(e) => {
                self.messages.pop();
                say(&format!("error: {e:#}"))?;
            }
            Ok(answer) => {
                let (content, reasoning) = (&answer.message.content, &answer.message.reasoning);
                let mut message = json!({ "role": "assistant", "content": content });
                if !reasoning.is_empty() {
                    message["reasoning_content"] = json!(reasoning);
                }
                self.messages.push(message);
                match answer.finish {
                    Finish::ContextFull => say("(The context is full: /clear, or start with a larger -c.)")?,
                    Finish::MaxTokens => say("(cut at -n)")?,
                    Finish::Cancelled => say("(stopped)")?,
                    Finish::EndToken | Finish::StopString => {}
                }
                self.last = Some(answer.speed);
            }
        }
        Ok(())
    }
}
