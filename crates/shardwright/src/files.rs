//! Files beside a model's own: the model that the program brings along, a next-token layer, token ids.

use anyhow::{Context, anyhow, bail};
use shardwright_gguf::Reader;
use std::path::{Path, PathBuf};

/// Adds a next-token layer. Its file counts that layer among the blocks, which the trunk's file may not.
pub(crate) fn attach(reader: &mut Reader, mtp: &Path) -> anyhow::Result<()> {
    let companion = Reader::open(mtp)?;
    let name = || mtp.display().to_string();
    let key: String = reader.meta().need("general.architecture")?;
    let other: String = companion.meta().need("general.architecture").with_context(name)?;
    if other != key {
        bail!(
            "{}: its architecture is `{other}`, but the model's is `{key}`: it is of another model",
            name()
        );
    }
    for suffix in ["block_count", "nextn_predict_layers"] {
        let key = format!("{key}.{suffix}");
        let value = companion.meta().get(&key).cloned();
        let value = value.with_context(|| format!("{}: `{key}` is missing", name()))?;
        reader.meta_mut().set(&key, value);
    }
    Ok(reader.attach(companion)?)
}

/// The file of the demo model.
pub(crate) const DEMO: &str = "glm-dsa-demo-UD-Q4_K_XL.gguf";

/// The demo model: in the source tree, or in the share folder beside the executable's.
pub(crate) fn demo() -> anyhow::Result<PathBuf> {
    let exe = std::env::current_exe().ok();
    let beside = exe.as_deref().and_then(Path::parent);
    let places = [
        beside.map(|d| d.join(DEMO)),
        beside.map(|d| d.join("../share/shardwright").join(DEMO)),
        Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo").join(DEMO)),
    ];
    places.into_iter().flatten().find(|p| p.is_file()).ok_or_else(|| {
        anyhow!(
            "the demo model {DEMO} is not in this copy of Shardwright; name a GGUF file instead of --demo"
        )
    })
}

/// Token ids from a file of numbers between white space.
pub(crate) fn read_ids(path: &Path, vocab: usize) -> anyhow::Result<Vec<u32>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let id = |word: &str| match word.parse::<u32>() {
        Ok(id) if (id as usize) < vocab => Ok(id),
        Ok(id) => Err(anyhow!("{}: token id {id} is not in the vocabulary of {vocab}", path.display())),
        Err(_) => Err(anyhow!("{}: `{word}` is no token id", path.display())),
    };
    let ids: Vec<u32> = text.split_whitespace().map(id).collect::<anyhow::Result<_>>()?;
    match ids.is_empty() {
        true => bail!("{}: there are no token ids in it", path.display()),
        false => Ok(ids),
    }
}
