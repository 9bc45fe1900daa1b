//! The one table from GGUF architecture names to what reads their numbers.

mod deepseek2;
mod glm4moe;
mod glm_dsa;
mod llama;
mod qwen;

use crate::hyper::{Hyper, Source};
use crate::op::Description;
use crate::{Error, Result, blocks};
use shardwright_gguf::short;

/// An architecture: its name in files and how its numbers are read. All are [`blocks::decoder`]s.
#[derive(Debug)]
pub struct Arch {
    /// `general.architecture`.
    pub name: &'static str,
    read: fn(&Source<'_>) -> Result<Hyper>,
}

/// All that is supported.
pub const ARCHS: [Arch; 9] = [
    Arch { name: "deepseek2", read: deepseek2::v3 },
    Arch { name: "deepseek32", read: deepseek2::v32 },
    Arch { name: "glm-dsa", read: glm_dsa::read },
    Arch { name: "glm4moe", read: glm4moe::read },
    Arch { name: "llama", read: llama::llama },
    Arch { name: "qwen2", read: qwen::qwen2 },
    Arch { name: "qwen3", read: qwen::qwen3 },
    Arch { name: "qwen3moe", read: qwen::qwen3moe },
    Arch { name: "smollm3", read: llama::smollm3 },
];

/// Names that look close to ours and are not.
const CLOSE: [(&str, &str); 5] = [
    ("glm5-next", "GLM-5.3-Flash has linear attention, another architecture than GLM-5's"),
    ("glm4", "dense GLM-4 is another architecture than glm4moe"),
    ("chatglm", "ChatGLM is another architecture than glm4moe"),
    ("qwen3next", "Qwen3-Next has linear attention"),
    ("deepseek4", "DeepSeek-V4 is another architecture than deepseek2"),
];

/// Read the numbers of a model from its file's header.
///
/// # Errors
/// If the architecture is unknown, or a key is missing or makes no sense.
pub fn read(source: &Source<'_>) -> Result<Hyper> {
    let found = source.arch()?;
    match ARCHS.iter().find(|a| a.name == found) {
        Some(arch) => (arch.read)(source),
        None => {
            let hint = CLOSE.iter().find(|c| c.0 == found).map_or(String::new(), |c| format!("; {}", c.1));
            let found = short(&found);
            Err(Error::Architecture { found, supported: ARCHS.map(|a| a.name).join(", "), hint })
        }
    }
}

/// The model, whole.
pub fn describe(h: &Hyper) -> Description {
    blocks::decoder(h)
}

/// Its next-token layer, if the file has one.
pub fn draft(h: &Hyper) -> Option<Description> {
    blocks::draft(h)
}
