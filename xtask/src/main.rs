//! `cargo run -p xtask -- tidy | licences`
#![forbid(unsafe_code)]

use anyhow::{Result, bail};

fn main() -> Result<()> {
    let chore = std::env::args().nth(1).unwrap_or_default();
    let (what, found): (_, Vec<String>) = match chore.as_str() {
        "tidy" => {
            let tree = xtask::tidy::Tree::read(&xtask::root())?;
            (format!("{} files", tree.files.len()), tree.check().iter().map(ToString::to_string).collect())
        }
        "licences" => {
            let (packages, refused) = xtask::licences::check(&xtask::root())?;
            (format!("{packages} packages"), refused)
        }
        other => bail!("unknown chore {other:?}; there are: tidy, licences"),
    };
    for line in &found {
        eprintln!("{line}");
    }
    if !found.is_empty() {
        bail!("{chore}: {} found", found.len());
    }
    println!("{chore}: {what}, nothing found");
    Ok(())
}
