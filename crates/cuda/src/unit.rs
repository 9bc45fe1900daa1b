//! Kernels as data: a source, and the numbers it is compiled for.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Display;

use shardwright_gguf::QuantType;

use crate::format;

/// The sources, by the names that includes use.
pub(crate) const FILES: &[(&str, &str)] = &[
    ("common/cache.cuh", include_str!("kernels/common/cache.cuh")),
    ("common/dot.cuh", include_str!("kernels/common/dot.cuh")),
    ("common/quant.cuh", include_str!("kernels/common/quant.cuh")),
    ("common/quant/bytes.cuh", include_str!("kernels/common/quant/bytes.cuh")),
    ("common/quant/iq.cuh", include_str!("kernels/common/quant/iq.cuh")),
    ("common/quant/k.cuh", include_str!("kernels/common/quant/k.cuh")),
    ("common/quant/legacy.cuh", include_str!("kernels/common/quant/legacy.cuh")),
    ("common/quant/low.cuh", include_str!("kernels/common/quant/low.cuh")),
    ("common/quant/mx.cuh", include_str!("kernels/common/quant/mx.cuh")),
    ("common/reduce.cuh", include_str!("kernels/common/reduce.cuh")),
    ("common/round.cuh", include_str!("kernels/common/round.cuh")),
    ("common/select.cuh", include_str!("kernels/common/select.cuh")),
    ("common/step.cuh", include_str!("kernels/common/step.cuh")),
    ("common/types.cuh", include_str!("kernels/common/types.cuh")),
    ("answer", include_str!("kernels/answer.cu")),
    ("attend", include_str!("kernels/attend.cu")),
    ("cache", include_str!("kernels/cache.cu")),
    ("combine", include_str!("kernels/combine.cu")),
    ("down", include_str!("kernels/down.cu")),
    ("embed", include_str!("kernels/embed.cu")),
    ("experts", include_str!("kernels/experts.cu")),
    ("hash", include_str!("kernels/hash.cu")),
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

/// The name under which kernels include the numbers and tables of their weight's block format.
const FORMAT: &str = "common/format.cuh";

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
    /// If a source includes what is not there, or the block format of a weight and none is given.
    pub fn source(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.defines {
            text += &format!("#define {name} {value}\n");
        }
        self.expand(self.stem, &mut BTreeSet::new(), &mut text);
        text
    }

    /// The text of a source, or what is made for this unit's block format.
    fn text(&self, name: &str) -> Cow<'static, str> {
        if name == FORMAT {
            let named =
                self.defines.iter().find_map(|(n, v)| v.strip_prefix("QUANT_").filter(|_| *n == "QUANT"));
            let quant = named.and_then(|name| QuantType::from_name(name).ok());
            return format::text(quant.unwrap_or_else(|| panic!("kernels: `{}` has no QUANT", self.stem)))
                .into();
        }
        let file = FILES.iter().find(|(n, _)| *n == name);
        file.unwrap_or_else(|| panic!("kernels: there is no source `{name}`")).1.into()
    }

    fn expand(&self, name: &str, seen: &mut BTreeSet<String>, out: &mut String) {
        if !seen.insert(name.to_owned()) {
            return;
        }
        for line in self.text(name).lines() {
            match line.strip_prefix("#include \"").and_then(|l| l.strip_suffix('"')) {
                Some(included) => self.expand(included, seen, out),
                None => {
                    out.push_str(line);
                    out.push('\n');
                }
            }
        }
    }

    /// Name and numbers, for reports: `linear K=6144 N=2048`.
    pub fn label(&self) -> String {
        let numbers = self.defines.iter().map(|(name, value)| format!(" {name}={value}"));
        self.stem.to_owned() + &numbers.collect::<String>()
    }
}
