//! Manifests: crates import what the plan draws, and nothing is switched by a cargo feature.

use toml::Table;

use super::house::{ROOMS, Room};
use super::{File, Tree, Violation};

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let manifests =
        tree.files.iter().filter(|f| f.room().is_some_and(|r| f.path == format!("{r}/Cargo.toml")));
    manifests.flat_map(manifest).collect()
}

fn manifest(file: &File) -> Vec<Violation> {
    let table = match file.text.as_deref().unwrap_or("").parse::<Table>() {
        Ok(table) => table,
        Err(e) => return vec![file.breaks(0, format!("not a manifest: {e}"))],
    };
    let folder = file.path.trim_end_matches("/Cargo.toml");
    let Some(room) = ROOMS.iter().find(|r| r.path == folder) else {
        return vec![
            file.breaks(0, "a crate that the plan does not draw; add it to xtask/src/tidy/house.rs"),
        ];
    };
    let mut found = Vec::new();
    let name = table.get("package").and_then(|p| p.get("name")).and_then(|n| n.as_str());
    if name != Some(room.package) {
        found.push(file.breaks(0, format!("the package must be named {:?}", room.package)));
    }
    if table.contains_key("features") {
        found.push(file.breaks(0, "[features]: there is one build; choose at run time"));
    }
    for (section, names) in dependencies(&table) {
        let refused = names.into_iter().filter(|n| !may_import(room, &section, n));
        found.extend(refused.map(|n| {
            let says = format!("[{section}] {n}: not drawn for this crate in xtask/src/tidy/house.rs");
            file.breaks(line_of(file, &n), says)
        }));
    }
    found
}

/// Each dependency section, with the names in it; those for one platform too.
fn dependencies(manifest: &Table) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for section in ["dependencies", "build-dependencies", "dev-dependencies"] {
        if let Some(names) = manifest.get(section).and_then(|s| s.as_table()) {
            found.push((section.to_owned(), names.keys().cloned().collect()));
        }
    }
    if let Some(targets) = manifest.get("target").and_then(|t| t.as_table()) {
        found.extend(targets.values().filter_map(|t| t.as_table()).flat_map(dependencies));
    }
    found
}

fn may_import(room: &Room, section: &str, name: &str) -> bool {
    let ours = name.starts_with("shardwright") || name == "xtask";
    let tests = section == "dev-dependencies";
    room.imports.contains(&name)
        || room.outside.contains(&name)
        || (tests && (!ours || room.tests.contains(&name) || name == room.package))
}

fn line_of(file: &File, name: &str) -> usize {
    let text = file.text.as_deref().unwrap_or("");
    text.lines().position(|l| l.starts_with(name)).map_or(0, |i| i + 1)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{expect, tree};
    use super::*;

    #[test]
    fn imports_are_as_drawn() {
        let head = "[package]\nname = \"shardwright-model\"\n";
        let rows = [
            ("[dependencies]\nshardwright-gguf.workspace = true\nthiserror = \"2\"", 0, ""),
            ("[dependencies]\nshardwright-cpu.workspace = true", 4, "shardwright-cpu: not drawn"),
            ("[dependencies]\ntokio = \"1\"", 4, "tokio: not drawn"),
            ("[dev-dependencies]\nproptest = \"1\"", 0, ""),
            ("[dev-dependencies]\nshardwright-cpu.workspace = true", 4, "shardwright-cpu: not drawn"),
            ("[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"", 4, "libc: not drawn"),
            ("[features]\ncuda = []", 0, "[features]"),
        ];
        for (text, line, says) in rows {
            let text = format!("{head}{text}");
            expect(&check(&tree(&[("crates/model/Cargo.toml", &text)])), line, says);
        }
        expect(&check(&tree(&[("crates/new/Cargo.toml", head)])), 0, "does not draw");
        expect(&check(&tree(&[("crates/cpu/Cargo.toml", head)])), 0, "must be named");
        expect(&check(&tree(&[("tests/oracle/other/Cargo.toml", "its own workspace")])), 0, "");
    }
}
