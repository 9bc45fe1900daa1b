//! Regular expressions that would cost too much at every token.
//!
//! A copy of something that may be empty can be skipped, so that all copies stay possible at once: with thousands of
//! them a single token takes a tenth of a second, in the thread that serves everybody.

use regex_syntax::hir::{Hir, HirKind};

/// How many copies of something that may be empty an expression asks for; 0 if it is none that can be read.
pub(crate) fn empty_copies(regex: &str) -> usize {
    regex_syntax::parse(regex).map_or(0, |hir| copies(&hir))
}

fn copies(hir: &Hir) -> usize {
    match hir.kind() {
        HirKind::Repetition(repetition) => {
            let inner = copies(&repetition.sub);
            let times = repetition.max.unwrap_or(repetition.min).max(1) as usize;
            match repetition.sub.properties().minimum_len() {
                Some(0) => times.saturating_mul(inner.max(1)),
                _ => inner,
            }
        }
        HirKind::Capture(capture) => copies(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(copies).fold(0, usize::saturating_add)
        }
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) | HirKind::Look(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_what_may_be_empty_are_counted() {
        let check = |regex: &str, expected: usize| assert_eq!(empty_copies(regex), expected, "{regex}");
        for cheap in ["", "a{5000}", "(?s:.){0,10000}", "[a-z]+@[a-z]+", "(ab?){3000}", "a[", "(a|b){2}"] {
            check(cheap, 0);
        }
        check("(a?){7}b", 7);
        check("(a*|b){3}(c?){4}", 7);
        check("(a?)*", 1);
        check("((a?){50}){50}a{5000}", 2500);
        check("(((a?){1000}){1000}){1000}", 1_000_000_000);
        check("(?:b(a?){30}){50}", 30);
    }
}
