//! The description of the house names every room: each crate and each of its modules.

use std::collections::BTreeSet;

use super::house::{ROOMS, ROOMS_DOC};
use super::{Tree, Violation};

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let Some(doc) = tree.text(ROOMS_DOC) else {
        return vec![Violation { file: ROOMS_DOC.into(), line: 0, says: "missing".into() }];
    };
    ROOMS.iter().filter(|r| r.path.starts_with("crates/")).flat_map(|r| room(tree, doc, r.path)).collect()
}

/// Modules of a crate that its section of the document does not name.
fn room(tree: &Tree, doc: &str, path: &str) -> Vec<Violation> {
    let name = path.trim_start_matches("crates/");
    let violation = |says| Violation { file: ROOMS_DOC.into(), line: 0, says };
    let Some(section) = section(doc, name) else {
        return vec![violation(format!("has no section `### {name}`"))];
    };
    let source = format!("{path}/src/");
    let modules =
        tree.files.iter().filter(|f| !tree.is_test(f)).filter_map(|f| f.path.strip_prefix(&source)).map(
            |f| {
                let module = f.split('/').next().unwrap_or(f);
                module.trim_end_matches(".rs").to_owned()
            },
        );
    let modules: BTreeSet<String> = modules.filter(|m| m != "lib" && m != "main").collect();
    let unnamed = modules.into_iter().filter(|m| !names(section, m));
    unnamed.map(|m| violation(format!("the section on {name} does not speak of `{m}`"))).collect()
}

/// From the heading `### name` to the next heading.
fn section<'a>(doc: &'a str, name: &str) -> Option<&'a str> {
    let heading = format!("\n### {name}\n");
    let start = doc.find(&heading)? + heading.len();
    let rest = &doc[start..];
    Some(rest.find("\n#").map_or(rest, |end| &rest[..end]))
}

/// Is the module named as code: `` `module` ``, `` `module::…` `` or `` `module/…` ``?
fn names(section: &str, module: &str) -> bool {
    section
        .split('`')
        .skip(1)
        .step_by(2)
        .any(|code| code.split(|c: char| !c.is_alphanumeric() && c != '_').next() == Some(module))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::tree;

    #[test]
    fn every_module_is_named() {
        let doc = "# House\n\n### cpu\n- `exec::Executor` runs. `ops/KIND.rs` too.\n\n### text\n`stream`\n";
        let rows = [
            ("exec.rs", true),
            ("ops/norm.rs", true),
            ("lib.rs", true),
            ("stream.rs", false),
            ("KIND.rs", false),
        ];
        for (file, named) in rows {
            let path = format!("crates/cpu/src/{file}");
            let found = room(&tree(&[(&path, "")]), doc, "crates/cpu");
            assert_eq!(found.is_empty(), named, "{file}: {found:?}");
        }
        assert!(room(&Tree::default(), doc, "crates/gguf")[0].says.contains("no section"));
        assert!(check(&Tree::default())[0].says.contains("missing"));
    }
}
