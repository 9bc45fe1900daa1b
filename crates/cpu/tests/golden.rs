//! The CPU backend against reference values that other programs computed.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;

/// Logits within the limit, the likeliest token everywhere the same, and all greedy tokens.
fn check_logits(name: &str, gold: &Gold, arrays: &str, setup: Setup, file: &std::path::Path) {
    let mut exec = open(file, setup);
    let limit = limit(name);
    for p in 0..gold.prompts() {
        let got = forward(&mut exec, &gold.ids(p));
        let mut worst = 0f64;
        for (n, at) in gold.ints(&format!("p{p}_logit_pos")).into_iter().enumerate() {
            let want = gold.at(&format!("p{p}_{arrays}"), &[n]);
            worst = worst.max(apart(&got[at], want));
            let best = (0..want.len()).fold(0, |b, i| if want[i] > want[b] { i } else { b });
            assert_eq!(argmax(&got[at]), best as u32, "{} p{p} position {at}", file.display());
        }
        println!("{} p{p} {arrays}: {worst:.2e} of {limit:.2e}", file.display());
        assert!(worst <= limit, "{} p{p} {arrays}: {worst} > {limit}", file.display());
    }
}

#[test]
fn logits_are_those_of_the_reference() {
    for (name, gold) in goldens() {
        for file in files(&name) {
            check_logits(&name, &gold, "logits", PLAIN, &file);
        }
    }
}
