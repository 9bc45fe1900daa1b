//! One stem for one kind of op: the variant in `op.rs` and the file of every backend that runs it.

use std::collections::BTreeMap;

use super::house::{KIND_FOLDERS, KIND_SHARED, KIND_STEMS, KINDS};
use super::{Tree, Violation};

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let Some(source) = tree.text(KINDS) else { return Vec::new() };
    let stems = stems(source);
    KIND_FOLDERS.iter().flat_map(|folder| compare(tree, folder, &stems)).collect()
}

/// Stem to the kinds it stands for.
fn stems(source: &str) -> BTreeMap<String, Vec<String>> {
    let mut stems: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let Ok(file) = syn::parse_file(source) else { return stems };
    for item in file.items {
        if let syn::Item::Enum(kinds) = item
            && kinds.ident == "Kind"
        {
            for variant in kinds.variants {
                let kind = variant.ident.to_string();
                stems.entry(stem(&kind)).or_default().push(kind);
            }
        }
    }
    stems.remove("");
    stems
}

/// `AttendMla` to `attend_mla`, unless it shares a file.
fn stem(kind: &str) -> String {
    if let Some((_, shared)) = KIND_STEMS.iter().find(|(k, _)| *k == kind) {
        return (*shared).to_owned();
    }
    let mut snake = String::new();
    for c in kind.chars() {
        if c.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}

fn compare(tree: &Tree, folder: &str, stems: &BTreeMap<String, Vec<String>>) -> Vec<Violation> {
    let files =
        tree.files.iter().filter_map(|f| Some((f.path.strip_prefix(folder)?.strip_suffix(".rs")?, f)));
    let files: BTreeMap<&str, _> = files.filter(|(stem, _)| !KIND_SHARED.contains(stem)).collect();
    let missing =
        stems.iter().filter(|(stem, _)| !files.contains_key(stem.as_str())).map(|(stem, kinds)| Violation {
            file: format!("{folder}{stem}.rs"),
            line: 0,
            says: format!("missing: the place of {}", kinds.join(", ")),
        });
    let strange = files.iter().filter(|(stem, _)| !stems.contains_key(**stem));
    missing
        .chain(strange.map(|(_, f)| f.breaks(0, format!("named after no kind of op in {KINDS}"))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{expect, tree};
    use super::*;

    #[test]
    fn one_file_a_kind() {
        let kinds = (
            KINDS,
            "pub enum Kind { Embed, Hidden, AttendMla { latent: usize }, Sum }\npub enum Other { X }",
        );
        let gpu = [("crates/cuda/src/ops/embed.rs", ""), ("crates/cuda/src/ops/attend_mla.rs", "")];
        let with = |cpu: &[&'static str]| {
            let cpu = cpu.iter().map(|path| (*path, ""));
            check(&tree(&[kinds].into_iter().chain(gpu).chain(cpu).collect::<Vec<_>>()))
        };
        let [embed, mla] = ["crates/cpu/src/ops/embed.rs", "crates/cpu/src/ops/attend_mla.rs"];
        expect(&with(&[embed, mla, "crates/cpu/src/ops/mod.rs"]), 0, "");
        expect(&with(&[embed]), 0, "the place of AttendMla");
        expect(&with(&[embed, mla, "crates/cpu/src/ops/mla.rs"]), 0, "named after no kind");
    }
}
