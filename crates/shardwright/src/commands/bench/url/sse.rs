//! Server-sent events, as they come.

use std::io::{self, BufRead, BufReader, Read};

/// More in one line, and it is no event of an answer.
const LINE: usize = 16 << 20;

/// The data of a stream's events. What the connection cut in the middle of a line is no event.
pub(super) struct Events<R> {
    reader: BufReader<R>,
    after_return: bool,
    begun: bool,
}

impl<R: Read> Events<R> {
    pub(super) fn new(reader: R) -> Events<R> {
        Events { reader: BufReader::new(reader), after_return: false, begun: false }
    }

    /// The next line without its end, which is `\n`, `\r` or both.
    fn line(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        loop {
            let ready = self.reader.fill_buf()?;
            if ready.is_empty() {
                return Ok(None);
            }
            if std::mem::take(&mut self.after_return) && ready[0] == b'\n' {
                self.reader.consume(1);
                continue;
            }
            let end = ready.iter().position(|b| [b'\n', b'\r'].contains(b));
            line.extend_from_slice(&ready[..end.unwrap_or(ready.len())]);
            self.after_return = end.is_some_and(|at| ready[at] == b'\r');
            let taken = end.map_or(ready.len(), |at| at + 1);
            self.reader.consume(taken);
            if line.len() > LINE {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a line of the stream has no end"));
            }
            if end.is_some() {
                let text = String::from_utf8_lossy(&line);
                let first = !std::mem::replace(&mut self.begun, true);
                let mark = if first { '\u{feff}' } else { '\n' };
                return Ok(Some(text.strip_prefix(mark).unwrap_or(&text).to_owned()));
            }
        }
    }
}

impl<R: Read> Iterator for Events<R> {
    type Item = io::Result<String>;

    fn next(&mut self) -> Option<io::Result<String>> {
        let mut data: Option<String> = None;
        loop {
            match self.line() {
                Err(e) => return Some(Err(e)),
                Ok(None) => return data.map(Ok),
                Ok(Some(line)) if line.is_empty() => {
                    if data.is_some() {
                        return data.map(Ok);
                    }
                }
                Ok(Some(line)) => {
                    let (name, value) = line.split_once(':').unwrap_or((&line, ""));
                    let value = value.strip_prefix(' ').unwrap_or(value);
                    match (name, &mut data) {
                        ("data", Some(data)) if data.len() + value.len() <= LINE => {
                            data.push('\n');
                            data.push_str(value);
                        }
                        ("data", None) => data = Some(value.to_owned()),
                        _ => {}
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte at a time, as a slow network may.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let n = 1.min(self.0.len());
            out[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    #[test]
    fn events_end_with_an_empty_line_of_any_kind() {
        let check = |text: &str, expected: &[&str]| {
            let whole: Vec<String> = Events::new(text.as_bytes()).map(|e| e.unwrap()).collect();
            let slow: Vec<String> = Events::new(Slow(text.as_bytes())).map(|e| e.unwrap()).collect();
            assert_eq!(whole, expected, "{text:?}");
            assert_eq!(slow, expected, "slowly, {text:?}");
        };
        check("data: a\n\ndata: b\n\n", &["a", "b"]);
        check("data: a\r\n\r\ndata:b\r\n\r\n", &["a", "b"]);
        check("data: a\r\rdata: b\r\r", &["a", "b"]);
        check("\u{feff}data: a\n\n", &["a"]);
        check(": ping\n\nevent: x\nid: 1\nretry: 2\ndata: a\ndata: b\n\n", &["a\nb"]);
        check("data\n\n", &[""]);
        check("data: [DONE]\n", &["[DONE]"]);
        check("data: a\n\ndata: cut in the mid", &["a"]);
        check("", &[]);
    }

    #[test]
    fn a_line_without_an_end_is_no_event() {
        let endless = io::repeat(b'x').take(2 * LINE as u64);
        assert!(Events::new(endless).next().unwrap().is_err());
    }
}
