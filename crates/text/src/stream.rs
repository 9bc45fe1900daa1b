//! Token bytes to whole characters, and stop strings found across token borders.

use std::mem;

/// Joins the bytes of tokens into text without ever showing half a character.
///
/// The pieces of any cutting join to what `String::from_utf8_lossy` makes of the whole.
#[derive(Debug, Default)]
pub struct Utf8Decoder {
    /// The beginning of a character whose end has not come yet: at most 3 bytes.
    tail: Vec<u8>,
}

impl Utf8Decoder {
    /// Takes a token's bytes, gives the characters that are whole now.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.tail.extend_from_slice(bytes);
        let joined = mem::take(&mut self.tail);
        let mut text = String::with_capacity(joined.len());
        let mut seen = 0;
        for chunk in joined.utf8_chunks() {
            text.push_str(chunk.valid());
            let bad = chunk.invalid();
            seen += chunk.valid().len() + bad.len();
            if seen == joined.len() && is_unfinished(bad) {
                self.tail = bad.to_vec();
            } else if !bad.is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        text
    }

    /// Gives one U+FFFD for a character that was never finished.
    pub fn finish(&mut self) -> String {
        let tail = mem::take(&mut self.tail);
        String::from_utf8_lossy(&tail).into_owned()
    }
}

fn is_unfinished(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

/// One stop string with its Knuth-Morris-Pratt table.
#[derive(Debug)]
struct Needle {
    text: String,
    /// `border[n]`: length of the longest proper prefix of the first n bytes that is also their suffix.
    border: Vec<usize>,
    /// How many bytes of `text` the input ends with at the moment.
    matched: usize,
}

impl Needle {
    fn new(text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut border = vec![0; bytes.len() + 1];
        let mut length = 0;
        for end in 1..bytes.len() {
            while length > 0 && bytes[length] != bytes[end] {
                length = border[length];
            }
            length += usize::from(bytes[length] == bytes[end]);
            border[end + 1] = length;
        }
        Self { text: text.to_owned(), border, matched: 0 }
    }

    /// Takes the next byte of the input; true if the needle ends with it.
    fn step(&mut self, byte: u8) -> bool {
        let bytes = self.text.as_bytes();
        while self.matched > 0 && bytes[self.matched] != byte {
            self.matched = self.border[self.matched];
        }
        self.matched += usize::from(bytes[self.matched] == byte);
        let complete = self.matched == bytes.len();
        if complete {
            self.matched = self.border[self.matched];
        }
        complete
    }
}

/// Finds the first of several stop strings in a text that arrives in pieces.
///
/// Of all occurrences the one that begins first counts, whatever the cutting. Only text that may still
/// turn out to be a stop string is held back. Time is linear in the text for each stop string.
#[derive(Debug, Default)]
pub struct StopFinder {
    needles: Vec<Needle>,
    /// The latest text; what was given away is removed now and then only, lest each token move the rest.
    held: String,
    /// How much of `held` was given away.
    shown: usize,
    /// Begin (in `held`) and needle of a complete stop string that an earlier, longer one may still overtake.
    candidate: Option<(usize, usize)>,
    found: Option<String>,
    /// Stop strings that become complete do not count.
    deaf: bool,
}

impl StopFinder {
    /// Stop strings in any order; empty ones are ignored, since they would stop everything.
    pub fn new(stops: &[String]) -> Self {
        let needles = stops.iter().filter(|stop| !stop.is_empty()).map(|stop| Needle::new(stop)).collect();
        Self { needles, ..Self::default() }
    }

    /// The stop string that ended the text, once there is one.
    pub fn found(&self) -> Option<&str> {
        self.found.as_deref()
    }

    /// From now on, do stop strings that become complete count? At first they do.
    pub fn heed(&mut self, heed: bool) {
        self.deaf = !heed;
    }

    /// Takes more text, gives what is certain to come before any stop string. Empty once a stop is found.
    pub fn push(&mut self, text: &str) -> String {
        if self.found.is_some() {
            return String::new();
        }
        let old = self.held.len();
        self.held.push_str(text);
        for (at, byte) in text.bytes().enumerate() {
            let end = old + at + 1;
            for (index, needle) in self.needles.iter_mut().enumerate() {
                if needle.step(byte) && !self.deaf {
                    let start = end - needle.text.len();
                    if self.candidate.is_none_or(|(first, _)| start < first) {
                        self.candidate = Some((start, index));
                    }
                }
            }
            if self.candidate.is_some_and(|(start, _)| self.first_open(end) >= start) {
                return self.finish();
            }
        }
        let safe = self.first_open(self.held.len());
        let ready = self.held[self.shown..safe].to_owned();
        self.shown = safe;
        if self.shown > self.held.len() / 2 {
            self.held.drain(..self.shown);
            if let Some((start, _)) = &mut self.candidate {
                *start -= self.shown;
            }
            self.shown = 0;
        }
        ready
    }

    /// Gives what was held back, up to a stop string if it holds one. The next text begins anew.
    pub fn finish(&mut self) -> String {
        for needle in &mut self.needles {
            needle.matched = 0;
        }
        let mut text = mem::take(&mut self.held);
        if let Some((start, index)) = self.candidate.take() {
            text.truncate(start);
            self.found = Some(self.needles[index].text.clone());
        }
        text.split_off(mem::take(&mut self.shown))
    }

    /// Where the longest unfinished stop string begins, `end` bytes of `held` having been looked at.
    fn first_open(&self, end: usize) -> usize {
        end - self.needles.iter().map(|needle| needle.matched).max().unwrap_or(0)
    }
}

/// Turns the bytes of generated tokens into text for a client: whole characters, cut at stop strings.
#[derive(Debug, Default)]
pub struct StreamDecoder {
    utf8: Utf8Decoder,
    stops: StopFinder,
}

impl StreamDecoder {
    /// A decoder that ends the text before the first of `stops`.
    pub fn new(stops: &[String]) -> Self {
        Self { utf8: Utf8Decoder::default(), stops: StopFinder::new(stops) }
    }

    /// From now on, do stop strings that become complete count? At first they do.
    pub fn heed(&mut self, heed: bool) {
        self.stops.heed(heed);
    }

    /// Takes one token's bytes, gives the text that is certain now.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        let text = self.utf8.push(bytes);
        self.stops.push(&text)
    }

    /// The stop string that ended the text: nothing more will come, generation may end.
    pub fn stopped(&self) -> Option<&str> {
        self.stops.found()
    }

    /// Gives what was held back: call it when generation ends for any other reason.
    pub fn finish(&mut self) -> String {
        let tail = self.utf8.finish();
        self.stops.push(&tail) + &self.stops.finish()
    }
}
