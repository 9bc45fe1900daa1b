//! All files: none too large, none that speaks of a machine or of how the work is done.

use super::house::{DATA, FILE_BYTES, FOREIGN, FOREIGN_EXEMPT};
use super::{File, Tree, Violation};

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let files =
        tree.files.iter().filter(|f| !DATA.iter().any(|d| f.path.starts_with(d)) || f.path.ends_with(".md"));
    files.flat_map(|f| size(f).into_iter().chain(words(f))).collect()
}

fn size(file: &File) -> Option<Violation> {
    let says = || format!("{} bytes; files over {FILE_BYTES} belong in {}", file.bytes, DATA.join(" or "));
    (file.bytes > FILE_BYTES).then(|| file.breaks(0, says()))
}

fn words(file: &File) -> Vec<Violation> {
    let text = file.text.as_deref().unwrap_or("");
    if file.path.starts_with(FOREIGN_EXEMPT) {
        return Vec::new();
    }
    let lines = text.lines().enumerate();
    lines
        .flat_map(|(i, line)| {
            let words = FOREIGN.iter().map(|(a, b)| format!("{a}{b}"));
            words
                .filter(|w| has(line, w))
                .map(move |w| file.breaks(i + 1, format!("{w:?}: speak of the product alone")))
        })
        .collect()
}

/// Does the line hold the word, not as the inside of a longer one?
fn has(line: &str, word: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    let starts = |c: char| c.is_alphanumeric();
    line.match_indices(word).any(|(i, _)| {
        let ends = !word.ends_with(starts) || edge(line[i + word.len()..].chars().next());
        edge(line[..i].chars().next_back()) && ends
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{expect, tree};
    use super::*;

    #[test]
    fn words_of_a_machine_are_found() {
        let path = FOREIGN[0].0.to_owned() + FOREIGN[0].1;
        let title = FOREIGN[5].0.to_owned() + FOREIGN[5].1;
        let rows = [
            (format!("fine\nsee {path}x"), 2, "speak of the product"),
            (format!("the frame{path}x"), 0, ""),
            (format!("our {title} says"), 1, "speak of the product"),
            (format!("VI{title}RY"), 0, ""),
        ];
        for (text, line, says) in rows {
            expect(&check(&tree(&[("README.md", &text)])), line, says);
            expect(&check(&tree(&[(".ci/run", &text)])), 0, "");
        }
    }

    #[test]
    fn large_files_are_found() {
        let big =
            |path: &str| Tree { files: vec![File { path: path.into(), bytes: FILE_BYTES + 1, text: None }] };
        expect(&check(&big("docs/picture.png")), 0, "bytes");
        expect(&check(&big("tests/data/models/a.gguf")), 0, "");
    }
}
