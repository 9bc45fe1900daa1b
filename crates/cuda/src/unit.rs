//! Kernels as data: a source, and the numbers it is compiled for.

use std::collections::BTreeSet;
use std::fmt::Display;

use shardwright_gguf::QuantType;

/// The sources, by the names that includes use.
const FILES: &[(&str, &str)] = &[
    ("answer", include_str!("kernels/answer.cu")),
    ("attend", include_str!("kernels/attend.cu")),
    ("cache", include_str!("kernels/cache.cu")),
    ("combine", include_str!("kernels/combine.cu")),
    ("common/cache.cuh", include_str!("kernels/common/cache.cuh")),
    ("common/dot.cuh", include_str!("kernels/common/dot.cuh")),
    ("common/quant.cuh", include_str!("kernels/common/quant.cuh")),
    ("common/reduce.cuh", include_str!("kernels/common/reduce.cuh")),
    ("common/select.cuh", include_str!("kernels/common/select.cuh")),
    ("common/step.cuh", include_str!("kernels/common/step.cuh")),
    ("common/types.cuh", include_str!("kernels/common/types.cuh")),
    ("down", include_str!("kernels/down.cu")),
    ("embed", include_str!("kernels/embed.cu")),
    ("experts", include_str!("kernels/experts.cu")),
    ("index", include_str!("kernels/index.cu")),
    ("linear", include_str!("kernels/linear.cu")),
    ("norm", include_str!("kernels/norm.cu")),
    ("pointwise", include_str!("kernels/pointwise.cu")),
    ("quantize", include_str!("kernels/quantize.cu")),
    ("rotate", include_str!("kernels/rotate.cu")),
    ("route", include_str!("kernels/route.cu")),
    ("select", include_str!("kernels/select.cu")),
    ("shape", include_str!("kernels/shape.cu")),
    ("sum", include_str!("kernels/sum.cu")),
    ("transposed", include_str!("kernels/transposed.cu")),
];

/// A kernel with everything it is compiled for. Its source defines one function, `run`, whose parameters are all
/// pointers: sizes are constants, and what changes from step to step lies in memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Unit {
    /// Stem of the source.
    pub stem: &'static str,
    /// The macros it is compiled with, as C writes their values.
    pub defines: Vec<(&'static str, String)>,
}

impl Unit {
    /// A kernel without constants.
    pub fn new(stem: &'static str) -> Unit {
        Unit { stem, defines: vec![] }
    }

    /// With an integer.
    #[must_use]
    pub fn int(self, name: &'static str, value: impl Display) -> Unit {
        self.define(name, value.to_string())
    }

    /// With a number, bit for bit.
    #[must_use]
    pub fn float(self, name: &'static str, value: f32) -> Unit {
        self.define(name, format!("__int_as_float({:#x})", value.to_bits()))
    }

    /// With the block format of a weight, as `QUANT`.
    #[must_use]
    pub fn quant(self, quant: QuantType) -> Unit {
        self.define("QUANT", format!("QUANT_{}", quant.name()))
    }

    fn define(mut self, name: &'static str, value: String) -> Unit {
        self.defines.push((name, value));
        self
    }

    /// What the compiler sees: one text without includes.
    ///
    /// # Panics
    /// If a source includes what is not there.
    pub fn source(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.defines {
            text += &format!("#define {name} {value}\n");
        }
        expand(self.stem, &mut BTreeSet::new(), &mut text);
        text
    }

    /// Name and numbers, for reports: `linear K=6144 N=2048`.
    pub fn label(&self) -> String {
        let numbers = self.defines.iter().map(|(name, value)| format!(" {name}={value}"));
        self.stem.to_owned() + &numbers.collect::<String>()
    }
}

fn expand(name: &str, seen: &mut BTreeSet<String>, out: &mut String) {
    if !seen.insert(name.to_owned()) {
        return;
    }
    let file = FILES.iter().find(|(n, _)| *n == name);
    let (_, text) = file.unwrap_or_else(|| panic!("kernels: there is no source `{name}`"));
    for line in text.lines() {
        match line.strip_prefix("#include \"").and_then(|l| l.strip_suffix('"')) {
            Some(included) => expand(included, seen, out),
            None => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
}
