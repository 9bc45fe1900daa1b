//! Bytes of tokens in any cutting against the same bytes in one piece.

use shardwright_text::stream::StreamDecoder;

use crate::Input;

/// Stop strings, then the bytes of tokens.
pub fn stream(data: &[u8]) {
    let mut input = Input::new(data);
    let stops: Vec<String> = (0..input.byte() % 5).map(|_| input.text().into_owned()).collect();
    let mut tokens = Vec::new();
    while !input.is_empty() {
        let n = input.byte();
        tokens.push(input.take(n.into()));
    }
    let text = String::from_utf8_lossy(&tokens.concat()).into_owned();
    let first = stops.iter().filter(|s| !s.is_empty()).filter_map(|s| text.find(s.as_str())).min();
    let mut decoder = StreamDecoder::new(&stops);
    let mut seen: String = tokens.iter().map(|t| decoder.push(t)).collect();
    seen += &decoder.finish();
    assert_eq!(seen, text[..first.unwrap_or(text.len())], "stops {stops:?}, tokens {tokens:?}");
    let stop = decoder.stopped();
    assert_eq!(stop.is_some(), first.is_some());
    assert!(first.zip(stop).is_none_or(|(at, stop)| text[at..].starts_with(stop)));
}
