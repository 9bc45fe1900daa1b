//! Kernels as data: a source, and the numbers it is compiled for.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Display;

use shardwright_gguf::QuantType;
use shardwright_model::exec::Wire;

use crate::{format, planes};

/// The sources, by the names that includes use.
pub(crate) const FILES: &[(&str, &str)] = &[
    ("common/bins.cuh", include_str!("kernels/common/bins.cuh")),
    ("common/cache.cuh", include_str!("kernels/common/cache.cuh")),
    ("common/clock.cuh", include_str!("kernels/common/clock.cuh")),
    ("common/decoder.cuh", include_str!("kernels/common/decoder.cuh")),
    ("common/dot.cuh", include_str!("kernels/common/dot.cuh")),
    ("common/exchange.cuh", include_str!("kernels/common/exchange.cuh")),
    ("common/hash.cuh", include_str!("kernels/common/hash.cuh")),
    ("common/last.cuh", include_str!("kernels/common/last.cuh")),
    ("common/line.cuh", include_str!("kernels/common/line.cuh")),
    ("common/matrix.cuh", include_str!("kernels/common/matrix.cuh")),
    ("common/merge.cuh", include_str!("kernels/common/merge.cuh")),
    ("common/mma.cuh", include_str!("kernels/common/mma.cuh")),
    ("common/norm.cuh", include_str!("kernels/common/norm.cuh")),
    ("common/overlap.cuh", include_str!("kernels/common/overlap.cuh")),
    ("common/parts.cuh", include_str!("kernels/common/parts.cuh")),
    ("common/piece.cuh", include_str!("kernels/common/piece.cuh")),
    ("common/push.cuh", include_str!("kernels/common/push.cuh")),
    ("common/quant.cuh", include_str!("kernels/common/quant.cuh")),
    ("common/quant/bytes.cuh", include_str!("kernels/common/quant/bytes.cuh")),
    ("common/quant/iq.cuh", include_str!("kernels/common/quant/iq.cuh")),
    ("common/quant/k.cuh", include_str!("kernels/common/quant/k.cuh")),
    ("common/quant/legacy.cuh", include_str!("kernels/common/quant/legacy.cuh")),
    ("common/quant/low.cuh", include_str!("kernels/common/quant/low.cuh")),
    ("common/quant/mx.cuh", include_str!("kernels/common/quant/mx.cuh")),
    ("common/reduce.cuh", include_str!("kernels/common/reduce.cuh")),
    ("common/rotate.cuh", include_str!("kernels/common/rotate.cuh")),
    ("common/round.cuh", include_str!("kernels/common/round.cuh")),
    ("common/route.cuh", include_str!("kernels/common/route.cuh")),
    ("common/select.cuh", include_str!("kernels/common/select.cuh")),
    ("common/side.cuh", include_str!("kernels/common/side.cuh")),
    ("common/step.cuh", include_str!("kernels/common/step.cuh")),
    ("common/tiles.cuh", include_str!("kernels/common/tiles.cuh")),
    ("common/types.cuh", include_str!("kernels/common/types.cuh")),
    ("answer", include_str!("kernels/answer.cu")),
    ("attend", include_str!("kernels/attend.cu")),
    ("attend_tiles", include_str!("kernels/attend_tiles.cu")),
    ("cache", include_str!("kernels/cache.cu")),
    ("combine", include_str!("kernels/combine.cu")),
    ("delay", include_str!("kernels/delay.cu")),
    ("down", include_str!("kernels/down.cu")),
    ("embed", include_str!("kernels/embed.cu")),
    ("exchange", include_str!("kernels/exchange.cu")),
    ("experts", include_str!("kernels/experts.cu")),
    ("group", include_str!("kernels/group.cu")),
    ("hash", include_str!("kernels/hash.cu")),
    ("held", include_str!("kernels/held.cu")),
    ("index", include_str!("kernels/index.cu")),
    ("index_tiles", include_str!("kernels/index_tiles.cu")),
    ("lay", include_str!("kernels/lay.cu")),
    ("linear", include_str!("kernels/linear.cu")),
    ("lines", include_str!("kernels/lines.cu")),
    ("matmul", include_str!("kernels/matmul.cu")),
    ("matmul_experts", include_str!("kernels/matmul_experts.cu")),
    ("norm", include_str!("kernels/norm.cu")),
    ("pointwise", include_str!("kernels/pointwise.cu")),
    ("quantize", include_str!("kernels/quantize.cu")),
    ("read", include_str!("kernels/read.cu")),
    ("rotate", include_str!("kernels/rotate.cu")),
    ("route", include_str!("kernels/route.cu")),
    ("select", include_str!("kernels/select.cu")),
    ("shape", include_str!("kernels/shape.cu")),
    ("stamp", include_str!("kernels/stamp.cu")),
    ("sum", include_str!("kernels/sum.cu")),
    ("transposed", include_str!("kernels/transposed.cu")),
    ("weigh", include_str!("kernels/weigh.cu")),
    ("wire", include_str!("kernels/wire.cu")),
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
    pub defines: Defines,
    /// The same for each kind of matrix that it multiplies with: the n-th is `mN::Matrix` in its source.
    pub matrices: Vec<Defines>,
}

/// The stem of what has no source: a sum of the library of a group of devices.
const ALL_REDUCE: &str = "all_reduce";

/// Names of macros and their values.
pub type Defines = Vec<(&'static str, String)>;

/// What kernels that take matrices of several kinds include once for each, and what comes before, once for all.
const MATRIX: [&str; 2] = ["common/matrix.cuh", "common/reduce.cuh"];

/// The mark of kinds of which kernels include the decoder, and where that is.
const DECODER: &str = "DECODER";
const DECODER_FILE: &str = "common/decoder.cuh";

impl Unit {
    /// A kernel without constants.
    pub fn new(stem: &'static str) -> Unit {
        Unit { stem, defines: vec![], matrices: vec![] }
    }

    /// No kernel of ours, but the library's sum over all devices of a group: rows of so many elements, which lie as they travel.
    pub fn all_reduce(width: usize, wire: Wire) -> Unit {
        Unit::new(ALL_REDUCE).int("WIDTH", width).int("BF16", u8::from(wire == Wire::Bf16))
    }

    /// Of such a sum, elements of a row and what they are.
    pub fn reduced(&self) -> Option<(usize, Wire)> {
        let [(_, width), (_, bf16)] = &self.defines[..] else { return None };
        let wire = if bf16 == "1" { Wire::Bf16 } else { Wire::F32 };
        (self.stem == ALL_REDUCE).then(|| Some((width.parse().ok()?, wire)))?
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

    /// Adds a kind of matrix, by a weight's format, its bytes a row, elements of a row, and whether activations are
    /// rounded for it. The result is its name as a type; equal ones are one.
    pub fn matrix(&mut self, quant: QuantType, row_bytes: usize, cols: usize, fast: bool) -> String {
        let kind = Unit::new("").quant(quant).int("ROW_BYTES", row_bytes).int("COLS", cols);
        let (lanes, slices) = planes::lanes_and_slices(quant, row_bytes, cols, fast);
        let kind = kind.int("FAST", u8::from(fast)).int("LANES", lanes).int("SLICES", slices);
        format!("{}::Matrix", self.kind(kind.defines))
    }

    /// The same for kernels that take a quantized matrix apart for themselves.
    pub fn decoder(&mut self, quant: QuantType, row_bytes: usize, cols: usize) -> String {
        let kind = Unit::new("").quant(quant).int("ROW_BYTES", row_bytes).int("COLS", cols);
        format!("{}::Decoder", self.kind(kind.int("FAST", 1).int(DECODER, 1).defines))
    }

    /// The namespace of a kind of matrix.
    fn kind(&mut self, kind: Defines) -> String {
        let known = self.matrices.iter().position(|m| *m == kind);
        let n = known.unwrap_or_else(|| {
            self.matrices.push(kind);
            self.matrices.len() - 1
        });
        format!("m{n}")
    }

    /// What the compiler sees: one text without includes.
    ///
    /// # Panics
    /// If a source includes what is not there, or the block format of a weight and none is given.
    pub fn source(&self) -> String {
        let (mut text, mut seen) = (defined(&self.defines), BTreeSet::new());
        let [matrix, before] = MATRIX;
        if !self.matrices.is_empty() {
            self.expand(before, &self.defines, &mut seen, &mut text);
        }
        for (n, kind) in self.matrices.iter().enumerate() {
            let mut one = defined(kind);
            one += &format!("namespace m{n} {{\n");
            let decoder = kind.iter().any(|(name, _)| *name == DECODER);
            let file = if decoder { DECODER_FILE } else { matrix };
            self.expand(file, kind, &mut seen.clone(), &mut one);
            one += "}\n";
            // the next kind has other values under the same names
            let names =
                one.lines().filter_map(|line| line.strip_prefix("#define ")?.split([' ', '(']).next());
            let names: BTreeSet<&str> = names.collect();
            let ends: String = names.iter().map(|name| format!("#undef {name}\n")).collect();
            text += &(one + &ends);
        }
        self.expand(self.stem, &self.defines, &mut seen, &mut text);
        text
    }

    /// The text of a source, or what is made for a block format.
    fn text(&self, name: &str, defines: &Defines) -> Cow<'static, str> {
        if name == FORMAT {
            let named = defines.iter().find_map(|(n, v)| v.strip_prefix("QUANT_").filter(|_| *n == "QUANT"));
            let quant = named.and_then(|name| QuantType::from_name(name).ok());
            return format::text(quant.unwrap_or_else(|| panic!("kernels: `{}` has no QUANT", self.stem)))
                .into();
        }
        let file = FILES.iter().find(|(n, _)| *n == name);
        file.unwrap_or_else(|| panic!("kernels: there is no source `{name}`")).1.into()
    }

    fn expand(&self, name: &str, defines: &Defines, seen: &mut BTreeSet<String>, out: &mut String) {
        if !seen.insert(name.to_owned()) {
            return;
        }
        for line in self.text(name, defines).lines() {
            match line.strip_prefix("#include \"").and_then(|l| l.strip_suffix('"')) {
                Some(included) => self.expand(included, defines, seen, out),
                None => {
                    out.push_str(line);
                    out.push('\n');
                }
            }
        }
    }

    /// May it begin while what is in front of it still runs (`kernels/common/overlap.cuh`)? All but one may: blocks that join the parts of
    /// an attention would take up room that the ones after them could use, which cost Llama-3-8B 7 % on an H200.
    pub(crate) fn overlaps(&self) -> bool {
        self.stem != "combine"
    }

    /// Bytes of shared memory that a launch gives each block: its `SHARED`.
    pub fn shared(&self) -> u32 {
        let shared = self.defines.iter().find(|(name, _)| *name == "SHARED");
        shared.and_then(|(_, bytes)| bytes.parse().ok()).unwrap_or(0)
    }

    /// Name and numbers, for reports: `linear K=6144 N=2048`.
    pub fn label(&self) -> String {
        let all = self.defines.iter().chain(self.matrices.iter().flatten());
        let numbers = all.map(|(name, value)| format!(" {name}={value}"));
        self.stem.to_owned() + &numbers.collect::<String>()
    }
}

/// The lines that define macros.
fn defined(defines: &Defines) -> String {
    defines.iter().map(|(name, value)| format!("#define {name} {value}\n")).collect()
}
