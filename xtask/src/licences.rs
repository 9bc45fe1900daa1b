//! Are the licences of all packages we build on among those that `deny.toml` allows?

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use spdx::{Expression, ParseMode};

/// How many packages the lock file brings in, and one line for each whose licence is not allowed.
pub fn check(root: &Path) -> Result<(usize, Vec<String>)> {
    let deny = std::fs::read_to_string(root.join("deny.toml")).context("deny.toml")?;
    let allowed = allowed(&deny)?;
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root)
        .output()
        .context("cargo metadata")?;
    ensure!(out.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
    let metadata: Value = serde_json::from_slice(&out.stdout)?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let refused = packages.iter().filter_map(|p| {
        let licence = p["license"].as_str().unwrap_or("");
        let complaint = refusal(licence, &allowed)?;
        Some(format!("{} {}: {complaint}", p["name"], p["version"]))
    });
    Ok((packages.len(), refused.collect()))
}

/// The `[licenses] allow` list of a `deny.toml`.
fn allowed(deny: &str) -> Result<Vec<String>> {
    let table: toml::Table = deny.parse()?;
    let list = table.get("licenses").and_then(|l| l.get("allow")).and_then(|a| a.as_array());
    let list = list.context("deny.toml has no [licenses] allow list")?;
    Ok(list.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect())
}

/// What is wrong with a licence expression, if anything is.
fn refusal(licence: &str, allowed: &[String]) -> Option<String> {
    if licence.is_empty() {
        return Some("names no licence".into());
    }
    match Expression::parse_mode(licence, ParseMode::LAX) {
        Err(e) => Some(format!("licence {licence:?} cannot be read: {}", e.reason)),
        Ok(e) if !e.evaluate(|r| allowed.contains(&r.to_string())) => {
            Some(format!("licence {licence:?} is not allowed by deny.toml"))
        }
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions() {
        let allow =
            allowed("[licenses]\nallow = [\"MIT\", \"Apache-2.0\", \"Apache-2.0 WITH LLVM-exception\"]")
                .unwrap();
        let rows = [
            ("MIT", true),
            ("MIT/Apache-2.0", true),
            ("GPL-3.0-only OR MIT", true),
            ("GPL-3.0-only AND MIT", false),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("AGPL-3.0-or-later", false),
            ("no such thing", false),
            ("", false),
        ];
        for (licence, good) in rows {
            assert_eq!(refusal(licence, &allow).is_none(), good, "{licence}");
        }
    }
}
