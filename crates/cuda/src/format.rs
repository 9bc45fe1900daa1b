//! Numbers and tables of a block format as a source that kernels include, so that they are written down once.

use std::fmt::Write;

use shardwright_gguf::QuantType;

use crate::planes;

/// Numbers of the names of all types, then the facts of this one, and its codebook as words.
pub(crate) fn text(quant: QuantType) -> String {
    let mut text = String::new();
    let mut define = |name: &str, value: usize| {
        // Writing to a string can't fail.
        let _ = writeln!(text, "#define QUANT_{name} {value}");
    };
    for named in QuantType::ALL {
        define(named.name(), named.id() as usize);
    }
    define("PLAIN", usize::from(quant.group().is_none()));
    define("LEN", quant.block_len());
    define("BYTES", quant.block_bytes());
    define("GROUP", quant.group().unwrap_or(1));
    define("HAS_MIN", usize::from(quant.has_min()));
    define("PLANES", usize::from(!planes::fields(quant).is_empty()));
    let (words, _) = quant.codebook().as_chunks::<4>();
    if !words.is_empty() {
        let values = words.iter().map(|w| format!("{:#x},", u32::from_le_bytes(w.map(|v| v as u8))));
        let _ = writeln!(
            text,
            "__device__ const __align__(8) u32 CODEBOOK[{}] = {{{}}};",
            words.len(),
            values.collect::<String>()
        );
    }
    text
}
