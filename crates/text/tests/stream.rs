//! Whole characters and stop strings, however the bytes are cut into tokens.

use proptest::prelude::*;
use shardwright_text::stream::StreamDecoder;

/// Feeds tokens, gives the pieces that came out (the flush at the end is the last) and the stop string found.
fn decode(tokens: &[&[u8]], stops: &[&str]) -> (Vec<String>, Option<String>) {
    let stops: Vec<String> = stops.iter().map(|stop| (*stop).to_owned()).collect();
    let mut decoder = StreamDecoder::new(&stops);
    let mut pieces: Vec<String> = tokens.iter().map(|token| decoder.push(token)).collect();
    pieces.push(decoder.finish());
    (pieces, decoder.stopped().map(str::to_owned))
}

#[test]
fn s1_characters_that_span_tokens_arrive_whole() {
    let emoji: &[&[u8]] = &[b"ok ", b"\xf0\x9f", b"\x98", b"\x80", b"!", b"\xe8\xb5", b"\x8b"];
    let rows: &[(&[&[u8]], &[&str])] = &[
        (emoji, &["ok ", "", "", "😀", "!", "", "赋", ""]),
        (&[b"x", b"\xff", b"y"], &["x", "\u{fffd}", "y", ""]),
        (&[b"z", b"\xe2\x82"], &["z", "", "\u{fffd}"]),
        (&emoji[..2], &["ok ", "", "\u{fffd}"]),
        (&emoji[..3], &["ok ", "", "", "\u{fffd}"]),
        (&[b"\xe2\x82", b"a"], &["", "\u{fffd}a", ""]),
        (&[b"\xe2", b"\xe2\x82", b"\xac"], &["", "\u{fffd}", "€", ""]),
        (&[b"\xf0\x9f", b"\xf0\x9f\x98\x80"], &["", "\u{fffd}😀", ""]),
        (&[b"", b"\xc3", b"", b"\xa9"], &["", "", "", "é", ""]),
    ];
    for (tokens, pieces) in rows {
        assert_eq!(decode(tokens, &[]).0, *pieces, "{tokens:?}");
    }
}

#[test]
fn s2_stop_strings_work_across_tokens() {
    const FOX: [&[u8]; 4] = [b"The quick br", b"own f", b"ox jumps", b" over"];
    let rows: &[(&[&str], usize, &str, Option<&str>)] = &[
        (&["own fox"], 4, "The quick br", Some("own fox")),
        (&["fox j"], 4, "The quick brown ", Some("fox j")),
        (&["ox jumps over!"], 4, "The quick brown fox jumps over", None),
        (&["own fox"], 2, "The quick brown f", None),
        (&["jumps", "quick"], 4, "The ", Some("quick")),
        (&["The"], 4, "", Some("The")),
        (&[""], 4, "The quick brown fox jumps over", None),
        (&[], 4, "The quick brown fox jumps over", None),
        (&["own", "own fox"], 4, "The quick br", Some("own")),
        (&["x jumps over", "ox"], 4, "The quick brown f", Some("ox")),
    ];
    for (stops, count, text, stop) in rows {
        let (pieces, found) = decode(&FOX[..*count], stops);
        assert_eq!((pieces.concat().as_str(), found.as_deref()), (*text, *stop), "{stops:?} {count}");
    }
}

#[test]
fn stops_that_are_complete_too_early_do_not_count() {
    let check = |deaf: usize, text: &str, stop: Option<&str>| {
        let mut decoder = StreamDecoder::new(&["ab".to_owned()]);
        let mut all = String::new();
        for (at, token) in [b"xa", b"bx", b"ab", b"xx"].iter().enumerate() {
            decoder.heed(at >= deaf);
            all += &decoder.push(*token);
        }
        all += &decoder.finish();
        assert_eq!((all.as_str(), decoder.stopped()), (text, stop), "{deaf}");
    };
    check(0, "x", Some("ab"));
    check(1, "x", Some("ab"));
    check(2, "xabx", Some("ab"));
    check(3, "xabxabxx", None);
}

/// Tokens, stop strings, and the pieces that come out.
type Held = (&'static [&'static [u8]], &'static [&'static str], &'static [&'static str]);

/// What could still become a stop string waits, nothing else does.
#[test]
fn s2_only_a_possible_stop_is_held_back() {
    let rows: &[Held] = &[
        (&[b"The quick br", b"own f", b"un"], &["own fox"], &["The quick br", "", "own fun", ""]),
        (&[b"aab", b"aab", b"aac"], &["aabaac"], &["", "aab", "", ""]),
        (&[b"abc", b"x"], &["abcd", "c"], &["", "ab", ""]),
        (&[b"abc", b"d"], &["abcd", "c"], &["", "", ""]),
        (&[b"caf\xc3", b"\xa8!"], &["é"], &["caf", "è!", ""]),
        (&[b"\xe2\x82", b"\xac 5"], &["€ 5"], &["", "", ""]),
    ];
    for (tokens, stops, pieces) in rows {
        assert_eq!(decode(tokens, stops).0, *pieces, "{tokens:?} {stops:?}");
    }
}

#[test]
fn long_stop_strings_stay_linear() {
    let stop = "a".repeat(20_000) + "b";
    let text = "a".repeat(200_000);
    let tokens: Vec<&[u8]> = text.as_bytes().chunks(3).collect();
    let started = std::time::Instant::now();
    assert_eq!(decode(&tokens, &[&stop]).0.concat(), text);
    assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
}

/// Where the first stop string begins, by trying everything.
fn first_stop(text: &str, stops: &[&str]) -> Option<usize> {
    stops.iter().filter_map(|stop| text.find(*stop)).min()
}

fn cut<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut ends: Vec<usize> =
        cuts.iter().map(|cut| cut.index(bytes.len() + 1)).chain([bytes.len()]).collect();
    ends.sort_unstable();
    let mut start = 0;
    ends.iter().map(|end| &bytes[std::mem::replace(&mut start, *end)..*end]).collect()
}

proptest! {
    #[test]
    fn any_bytes_in_any_cutting_are_read_lossily(
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0xc0..=0xf5_u8, 0x80..=0xbf_u8], 0..40),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let (pieces, _) = decode(&cut(&bytes, &cuts), &[]);
        prop_assert_eq!(pieces.concat(), String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn the_first_of_all_stop_strings_counts_in_any_cutting(
        text in "[abé]{0,30}",
        stops in prop::collection::vec("[abé]{1,5}", 0..4),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
        let (pieces, found) = decode(&cut(text.as_bytes(), &cuts), &stops);
        let first = first_stop(&text, &stops);
        prop_assert_eq!(pieces.concat(), &text[..first.unwrap_or(text.len())]);
        prop_assert_eq!(found.is_some(), first.is_some());
    }
}
