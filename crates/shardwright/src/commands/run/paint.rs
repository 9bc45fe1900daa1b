//! How an answer appears: as it streams, reasoning set apart, nothing that could play with the terminal.

use shardwright_text::reply::Event;
use std::io::{IsTerminal, Write};

const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// Where an answer goes.
pub(super) struct Screen {
    out: Option<Box<dyn Write>>,
    /// May colours be used?
    colour: bool,
    /// Would control characters reach a terminal?
    terminal: bool,
    part: Part,
    /// Does the last line still lack its end?
    open: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Nothing,
    Reasoning,
    Content,
}

impl Screen {
    /// Standard output; colours if it is a terminal that wants them (<https://no-color.org>).
    pub(super) fn stdout() -> Screen {
        let terminal = std::io::stdout().is_terminal();
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        Screen::new(Box::new(std::io::stdout()), terminal && !unwanted, terminal)
    }

    /// Shows nothing.
    pub(super) fn silent() -> Screen {
        Screen { out: None, colour: false, terminal: false, part: Part::Nothing, open: false }
    }

    fn new(out: Box<dyn Write>, colour: bool, terminal: bool) -> Screen {
        Screen { out: Some(out), colour, terminal, part: Part::Nothing, open: false }
    }

    /// Shows a piece of the answer at once.
    pub(super) fn show(&mut self, event: &Event) -> std::io::Result<()> {
        match event {
            Event::Reasoning(text) => self.text(Part::Reasoning, text),
            Event::Content(text) => self.text(Part::Content, text),
            // Nobody offers tools here, so no calls come.
            Event::CallStart { .. } | Event::CallArguments { .. } | Event::CallEnd { .. } => Ok(()),
        }
    }

    /// Ends the answer, and its last line.
    pub(super) fn end(&mut self) -> std::io::Result<()> {
        self.switch(Part::Nothing)?;
        let newline = if std::mem::take(&mut self.open) { "\n" } else { "" };
        self.write(newline)
    }

    fn text(&mut self, part: Part, text: &str) -> std::io::Result<()> {
        self.switch(part)?;
        self.open = !text.ends_with('\n');
        match self.terminal {
            true => self.write(&visible(text)),
            false => self.write(text),
        }
    }

    fn switch(&mut self, part: Part) -> std::io::Result<()> {
        let before = std::mem::replace(&mut self.part, part);
        if before == part {
            return Ok(());
        }
        if before == Part::Reasoning {
            let close = if self.colour { format!("{PLAIN}\n\n") } else { "\n</think>\n\n".into() };
            self.open = false;
            self.write(&close)?;
        }
        match part {
            Part::Reasoning if self.colour => self.write(DIM),
            Part::Reasoning => self.write("<think>\n"),
            Part::Nothing | Part::Content => Ok(()),
        }
    }

    fn write(&mut self, text: &str) -> std::io::Result<()> {
        match &mut self.out {
            Some(out) => out.write_all(text.as_bytes()).and_then(|()| out.flush()),
            None => Ok(()),
        }
    }
}

/// Control characters of a model's text made harmless.
fn visible(text: &str) -> String {
    let plain = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    text.chars().map(|c| if plain(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no test panics with it").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn reasoning_is_set_apart() {
        let check = |events: &[Event], colour: bool, terminal: bool, expected: &str| {
            let shared = Shared::default();
            let mut screen = Screen::new(Box::new(shared.clone()), colour, terminal);
            events.iter().for_each(|e| screen.show(e).expect("memory"));
            screen.end().expect("memory");
            let found = shared.0.lock().expect("no test panics with it").clone();
            assert_eq!(String::from_utf8(found).expect("text"), expected);
        };
        let reasoning = |t: &str| Event::Reasoning(t.into());
        let content = |t: &str| Event::Content(t.into());
        let both = [reasoning("so"), reasoning(" it is"), content("Yes"), content(".\n")];
        check(&both, true, true, "\x1b[2mso it is\x1b[0m\n\nYes.\n");
        check(&both, false, false, "<think>\nso it is\n</think>\n\nYes.\n");
        check(&both[..1], true, true, "\x1b[2mso\x1b[0m\n\n");
        check(&[content("Yes")], true, true, "Yes\n");
        check(&[], true, true, "");
        check(&[content("a\x1b[2Jb\r\tc")], true, true, "a\u{fffd}[2Jb\u{fffd}\tc\n");
        check(&[content("a\x1b[2Jb")], false, false, "a\x1b[2Jb\n");
    }
}
