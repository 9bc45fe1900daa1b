//! Quantization recipes: the type of each tensor by its name, as published files of that kind have it.

use crate::{Error, Result};
use shardwright_gguf::QuantType::{self, *};

/// A rule for the types of a file's tensors.
#[derive(Debug)]
pub struct Recipe {
    /// As on the command line.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Part of a dotted name and its type; the first that fits counts.
    rules: &'static [(&'static str, Pick)],
    /// The type of all other matrices.
    rest: QuantType,
}

/// The type of a tensor.
#[derive(Debug)]
enum Pick {
    Is(QuantType),
    /// The second in the layers that llama.cpp gives more bits: the first and last eighth, and every third between.
    More(QuantType, QuantType),
}
use Pick::{Is, More};

/// All recipes.
pub const RECIPES: &[Recipe] = &[
    Recipe { name: "f32", about: "everything F32", rules: &[], rest: F32 },
    Recipe { name: "f16", about: "matrices F16", rules: &[], rest: F16 },
    Recipe { name: "bf16", about: "matrices BF16", rules: &[], rest: BF16 },
    Recipe { name: "q8_0", about: "matrices Q8_0", rules: &[], rest: Q8_0 },
    Recipe {
        name: "q4_k_m",
        about: "as llama.cpp's Q4_K_M: Q4_K, with Q6_K for the head and in part for values and down",
        rules: &[
            (".output.weight", Is(Q6_K)),
            (".attn_v.", More(Q4_K, Q6_K)),
            (".ffn_down", More(Q4_K, Q6_K)),
        ],
        rest: Q4_K,
    },
    Recipe {
        name: "ud-q4_k_xl",
        about: "as Unsloth's GLM-5.2 UD-Q4_K_XL, with its single layers of more bits",
        rules: &[
            // the file has one layer with Q6_K gate and up, and two (one is block 8) with Q6_K down
            (".blk.8.ffn_gate_exps.", Is(Q6_K)),
            (".blk.8.ffn_up_exps.", Is(Q6_K)),
            (".blk.8.ffn_down_exps.", Is(Q6_K)),
            (".blk.9.ffn_down_exps.", Is(Q6_K)),
            (".ffn_down_exps.", Is(Q5_K)),
            ("_exps.", Is(Q4_K)),
        ],
        rest: Q8_0,
    },
    Recipe {
        name: "ud-q4_k_xl-regular",
        about: "the same without the single layers of more bits",
        rules: &[(".ffn_down_exps.", Is(Q5_K)), ("_exps.", Is(Q4_K))],
        rest: Q8_0,
    },
    Recipe {
        name: "q4_k-experts",
        about: "experts Q4_K, the head Q6_K, all other matrices Q8_0",
        rules: &[(".output.weight", Is(Q6_K)), ("_exps.", Is(Q4_K))],
        rest: Q8_0,
    },
    Recipe {
        name: "ud-q4_k_s-like",
        about: "experts Q4_K but for a few of more bits: about the size of Unsloth's UD-Q4_K_S",
        rules: &[
            (".blk.8.ffn_gate_exps.", Is(Q6_K)),
            (".blk.8.ffn_up_exps.", Is(Q6_K)),
            (".blk.8.ffn_down_exps.", Is(Q5_K)),
            ("_exps.", Is(Q4_K)),
        ],
        rest: Q8_0,
    },
    Recipe {
        name: "ud-q2_k_xl-like",
        about: "experts Q2_K with Q3_K down, the rest Q8_0",
        rules: &[(".ffn_down_exps.", Is(Q3_K)), ("_exps.", Is(Q2_K))],
        rest: Q8_0,
    },
];

impl Recipe {
    /// The recipe of a name.
    ///
    /// # Errors
    /// If there is none; the text lists them.
    pub fn find(name: &str) -> Result<&'static Recipe> {
        RECIPES.iter().find(|r| r.name.eq_ignore_ascii_case(name)).ok_or_else(|| Error::Unknown {
            what: "recipe",
            found: name.into(),
            known: RECIPES.iter().map(|r| r.name).collect::<Vec<_>>().join(", "),
        })
    }

    /// The type of a tensor of a model of `layers` blocks. Vectors, routers and index gates stay F32, as in all
    /// published files; rows that are no whole number of blocks get a type of smaller blocks.
    pub fn quant(&self, name: &str, ne: &[u64], layers: usize) -> QuantType {
        let dotted = format!(".{name}");
        let has = |part: &str| dotted.contains(part);
        let vector = ne.iter().skip(1).all(|n| *n == 1);
        if vector || has(".ffn_gate_inp.") || has(".indexer.proj.") {
            return F32;
        }
        let wish = match self.rules.iter().find(|r| has(r.0)) {
            None => self.rest,
            Some((_, Is(q))) => *q,
            Some((_, More(less, more))) => {
                let layer = name.split('.').nth(1).and_then(|l| l.parse().ok()).unwrap_or(0);
                if favoured(layer, layers) { *more } else { *less }
            }
        };
        fitting(wish, ne[0])
    }
}

/// llama.cpp's choice of layers whose sensitive tensors get more bits.
fn favoured(layer: usize, layers: usize) -> bool {
    let eighth = layers / 8;
    layer < eighth || layer >= 7 * eighth || (layer - eighth) % 3 == 2
}

/// llama.cpp's substitutes for rows that are no whole number of blocks.
fn fitting(wish: QuantType, row: u64) -> QuantType {
    let whole = |q: QuantType| row.is_multiple_of(q.block_len() as u64);
    let small = match wish {
        Q6_K => Q8_0,
        Q5_K => Q5_1,
        Q4_K => Q5_0,
        Q2_K | Q3_K => Q4_0,
        other => other,
    };
    [wish, small].into_iter().find(|q| whole(*q)).unwrap_or(F16)
}
