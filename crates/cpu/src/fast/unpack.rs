//! From the blocks of sixteen weight rows to codes side by side: the common types directly, the others one row after the other.

use super::rounded::RUN;
use super::tile::{Form, Runs, Single, Tile};
use crate::simd::{Kernel, LANES, Rows16, Simd};
use shardwright_gguf::QuantType;
use shardwright_gguf::quant::Codes;

/// Blocks of sixteen rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks<'a> {
    pub(crate) quant: QuantType,
    pub(crate) rows: Rows16<'a>,
    /// The first block of each row, and how many there are.
    pub(crate) first: usize,
    pub(crate) count: usize,
}

/// Fills a tile, for many rows of activations.
#[derive(Debug)]
pub(crate) struct Unpack<'a> {
    pub(crate) blocks: Blocks<'a>,
    pub(crate) tile: &'a mut Tile,
}

impl Kernel for Unpack<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        match self.blocks.form() {
            Some(form) => {
                self.tile.form = form;
                self.blocks.each::<S, Tile>(self.tile);
            }
            None => self.blocks.row_by_row(self.tile),
        }
    }
}

/// Meets one row of activations on the way, without a tile.
#[derive(Debug)]
pub(crate) struct Meet<'a> {
    pub(crate) blocks: Blocks<'a>,
    pub(crate) x: &'a [super::rounded::Run],
    pub(crate) out: &'a mut crate::simd::Sixteen,
}

impl Kernel for Meet<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        let mut single = Single::<S>::new(self.x, self.out, self.blocks.form().unwrap_or_default());
        self.blocks.each::<S, Single<'_, S>>(&mut single);
        S::store(single.sum, self.out);
    }
}

impl Blocks<'_> {
    /// What the codes of the common types mean.
    pub(crate) fn form(&self) -> Option<Form> {
        let (group, zero, min) = match self.quant {
            QuantType::Q4_0 => (RUN, 8, false),
            QuantType::Q5_0 => (RUN, 16, false),
            QuantType::Q8_0 | QuantType::IQ4_NL | QuantType::IQ4_XS => (RUN, 128, false),
            QuantType::Q4_1 | QuantType::Q5_1 | QuantType::Q4_K | QuantType::Q5_K => (RUN, 0, true),
            QuantType::Q6_K => (16, 32, false),
            _ => return None,
        };
        Some(Form { group, zero, min })
    }

    /// Hands the runs of the common types to `to`, in order.
    #[inline(always)]
    fn each<S: Simd, R: Runs<S>>(self, to: &mut R) {
        /// A macro, so that the unpacking function becomes part of the kernel.
        macro_rules! each {
            ($unpack:ident) => {
                for b in 0..self.count {
                    let at = (self.first + b) * self.quant.block_bytes();
                    $unpack::<S, R>(self.rows, at, b * self.quant.block_len() / RUN, to);
                }
            };
        }
        match self.quant {
            QuantType::Q4_0 => each!(q4_0),
            QuantType::Q4_1 => each!(q4_1),
            QuantType::Q5_0 => each!(q5_0),
            QuantType::Q5_1 => each!(q5_1),
            QuantType::Q8_0 => each!(q8_0),
            QuantType::Q4_K => each!(q4_k),
            QuantType::Q5_K => each!(q5_k),
            QuantType::Q6_K => each!(q6_k),
            QuantType::IQ4_NL => each!(iq4_nl),
            QuantType::IQ4_XS => each!(iq4_xs),
            other => unreachable!("{other} is no common type"),
        }
    }

    /// Any type, by its integer form.
    fn row_by_row(self, tile: &mut Tile) {
        let (len, bytes) = (self.quant.block_len(), self.quant.block_bytes());
        let (group, min) = (self.quant.group().unwrap_or(RUN), self.quant.has_min());
        let (zero, flip) = if min { (0, 0) } else { (128, 0x80) };
        tile.form = Form { group, zero, min };
        let mut block = Codes::default();
        for (b, r) in (0..self.count).flat_map(|b| (0..LANES).map(move |r| (b, r))) {
            self.quant.codes(self.rows.row(r, (self.first + b) * bytes, bytes), &mut block);
            for (k, four) in block.codes[..len].as_chunks::<4>().0.iter().enumerate() {
                tile.codes[b * len / 4 + k][r] = u32::from_le_bytes(four.map(|c| c as u8 ^ flip));
            }
            for g in 0..len / group {
                tile.scale[b * len / group + g][r] = block.scale[g];
                tile.min[b * len / group + g][r] = block.min[g];
            }
        }
    }
}

const NIBBLES: u32 = 0x0f0f_0f0f;

/// The lower and the upper halves of 16 bytes of each row.
#[inline(always)]
fn nibbles<S: Simd>(rows: Rows16<'_>, offset: usize) -> [S::U; 8] {
    let q = S::columns(rows, offset);
    let mut halves = [S::words(0); 8];
    for k in 0..4 {
        halves[k] = S::and(q[k], S::words(NIBBLES));
        halves[4 + k] = S::and(S::shr::<4>(q[k]), S::words(NIBBLES));
    }
    halves
}

/// Byte `b` of each word.
#[inline(always)]
fn byte<S: Simd>(word: S::U, b: usize) -> S::U {
    let word = match b {
        0 => word,
        1 => S::shr::<8>(word),
        2 => S::shr::<16>(word),
        _ => S::shr::<24>(word),
    };
    S::and(word, S::words(0xff))
}

/// The f16 at `at` of each row.
#[inline(always)]
fn half<S: Simd>(rows: Rows16<'_>, at: usize) -> S::F {
    S::halves(S::short_column(rows, at))
}

/// The two f16 at `at` of each row.
#[inline(always)]
fn two_halves<S: Simd>(rows: Rows16<'_>, at: usize) -> [S::F; 2] {
    let both = S::column(rows, at);
    [S::halves(both), S::halves(S::shr::<16>(both))]
}

#[inline(always)]
fn q4_0<S: Simd, R: Runs<S>>(rows: Rows16<'_>, at: usize, run: usize, to: &mut R) {
    to.whole::<true, false>(run, nibbles::<S>(rows, at + 2), half::<S>(rows, at), S::splat(0.0));
}

#[inline(always)]
fn q4_1<S: Simd, R: Runs<S>>(rows: Rows16<'_>, at: usize, run: usize, to: &mut R) {
    let [scale, min] = two_halves::<S>(rows, at);
    to.whole::<true, true>(run, nibbles::<S>(rows, at + 4), scale, min);
}

/// Nibbles at `at + 4` and their fifth bits in the word at `at`: bit j for element j.
#[inline(always)]
fn five_bits<S: Simd>(rows: Rows16<'_>, at: usize) -> [S::U; 8] {
    let mut bits = S::column(rows, at);
    let mut codes = nibbles::<S>(rows, at + 4);
    for q in &mut codes {
        // bits 0 to 3 to bit 4 of the four bytes
        let four = S::and(bits, S::words(0xf));
        let (even, odd) =
            (S::or(S::shl::<4>(four), S::shl::<18>(four)), S::or(S::shl::<11>(four), S::shl::<25>(four)));
        *q = S::or(*q, S::and(S::or(even, odd), S::words(0x1010_1010)));
        bits = S::shr::<4>(bits);
    }
    codes
}

#[inline(always)]
fn q5_0<S: Simd, R: Runs<S>>(rows: Rows16<'_>, at: usize, run: usize, to: &mut R) {
    to.whole::<true, false>(run, five_bits::<S>(rows, at + 2), half::<S>(rows, at), S::splat(0.0));
}

#[inline(always)]
fn q5_1<S: Simd, R: Runs<S>>(rows: Rows16<'_>, at: usize, run: usize, to: &mut R) {
    let [scale, min] = two_halves::<S>(rows, at);
    to.whole::<true, true>(run, five_bits::<S>(rows, at + 4), scale, min);
}

#[inline(always)]
fn q8_0<S: Simd, R: Runs<S>>(rows: Rows16<'_>, at: usize, run: usize, to: &mut R) {
    let [a, b] = [S::columns(rows, at + 2), S::columns(rows, at + 18)];
    let mut codes = [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]];
    for q in &mut codes {
        *q = S::xor(*q, S::words(0x8080_8080));
    }
    to.whole::<false, false>(run, codes, half::<S>(rows, at), S::splat(0.0));
}

/// The 16 bytes that begin a Q4_K or Q5_K block: two f16, then eight scales and eight minima of 6 bits.
#[inline(always)]
fn six_bit_scales<S: Simd>(rows: Rows16<'_>, at: usize) -> [[S::F; 8]; 2] {
    let [d, s0, s1, s2] = S::columns(rows, at);
    let (scale, min) = (S::halves(d), S::sub(S::splat(0.0), S::halves(S::shr::<16>(d))));
    let (six, two) = (S::words(0x3f3f_3f3f), S::words(0x3030_3030));
    let scales = [S::and(s0, six), S::or(S::and(s2, S::words(NIBBLES)), S::and(S::shr::<2>(s0), two))];
    let s2 = S::shr::<4>(s2);
    let mins = [S::and(s1, six), S::or(S::and(s2, S::words(NIBBLES)), S::and(S::shr::<2>(s1), two))];
    let mut all = [[S::splat(0.0); 8]; 2];
    for g in 0..8 {
        all[0][g] = S::mul(scale, S::float(byte::<S>(scales[g / 4], g % 4)));
        all[1][g] = S::mul(min, S::float(byte::<S>(mins[g / 4], g % 4)));
    }
    all
}

#[inline(always)]
fn q4_k<S: Simd, R: Runs<S>>(rows: Rows16<'_>, at: usize, run: usize, to: &mut R) {
    let [scales, mins] = six_bit_scales::<S>(rows, at);
    for c in 0..4 {
        let [a, b] = [nibbles::<S>(rows, at + 16 + 32 * c), nibbles::<S>(rows, at + 32 + 32 * c)];
        let (low, high) = (2 * c, 2 * c + 1);
        let codes = [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]];
        to.whole::<true, true>(run + low, codes, scales[low], mins[low]);
        let codes = [a[4], a[5], a[6], a[7], b[4], b[5], b[6], b[7]];
        to.whole::<true, true>(run + high, codes, scales[high], mins[high]);
    }
}

#[inline(always)]
fn q5_k<S: Simd, R: Runs<S>>(rows: Rows16<'_>, at: usize, run: usize, to: &mut R) {
    let [scales, mins] = six_bit_scales::<S>(rows, at);
    let [h0, h1] = [S::columns(rows, at + 16), S::columns(rows, at + 32)];
    let mut fifth = [h0[0], h0[1], h0[2], h0[3], h1[0], h1[1], h1[2], h1[3]];
    for c in 0..4 {
        let [a, b] = [nibbles::<S>(rows, at + 48 + 32 * c), nibbles::<S>(rows, at + 64 + 32 * c)];
        let low = [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]];
        let high = [a[4], a[5], a[6], a[7], b[4], b[5], b[6], b[7]];
        for (half, mut codes) in [low, high].into_iter().enumerate() {
            for k in 0..8 {
                codes[k] = S::or(codes[k], S::shl::<4>(S::and(fifth[k], S::words(0x0101_0101))));
                fifth[k] = S::shr::<1>(fifth[k]);
            }
            let g = 2 * c + half;
            to.whole::<true, true>(run + g, codes, scales[g], mins[g]);
        }
    }
}

/// Bits 4 and 5 from another word.
#[inline(always)]
fn with_top<S: Simd>(q: S::U, top: S::U) -> S::U {
    S::or(q, S::and(top, S::words(0x3030_3030)))
}

#[inline(always)]
fn q6_k<S: Simd, R: Runs<S>>(rows: Rows16<'_>, at: usize, run: usize, to: &mut R) {
    let d = half::<S>(rows, at + 208);
    let scales = S::columns(rows, at + 192);
    // of each half of a block the upper bits of all four quarters lie in the same bytes
    for half in 0..2 {
        let mut codes = [[S::words(0); 8]; 4];
        for part in 0..2 {
            let a = nibbles::<S>(rows, at + 64 * half + 16 * part);
            let b = nibbles::<S>(rows, at + 64 * half + 32 + 16 * part);
            let high = S::columns(rows, at + 128 + 32 * half + 16 * part);
            for k in 0..4 {
                codes[0][4 * part + k] = with_top::<S>(a[k], S::shl::<4>(high[k]));
                codes[1][4 * part + k] = with_top::<S>(b[k], S::shl::<2>(high[k]));
                codes[2][4 * part + k] = with_top::<S>(a[4 + k], high[k]);
                codes[3][4 * part + k] = with_top::<S>(b[4 + k], S::shr::<2>(high[k]));
            }
        }
        for (quarter, codes) in codes.into_iter().enumerate() {
            let mut scale = [d; 2];
            for (part, scale) in scale.iter_mut().enumerate() {
                let g = 8 * half + 2 * quarter + part;
                let biased = S::xor(byte::<S>(scales[g / 4], g % 4), S::words(0x80));
                *scale = S::mul(d, S::float(S::plus(biased, S::words(0u32.wrapping_sub(0x80)))));
            }
            to.halves::<true>(run + 4 * half + quarter, codes, scale);
        }
    }
}

/// The values of IQ4 codes, plus 128.
const IQ4: [u8; 16] = [1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241];

#[inline(always)]
fn iq4_values<S: Simd>(rows: Rows16<'_>, at: usize) -> [S::U; 8] {
    let mut codes = nibbles::<S>(rows, at);
    for q in &mut codes {
        *q = S::look_up(&IQ4, *q);
    }
    codes
}

#[inline(always)]
fn iq4_nl<S: Simd, R: Runs<S>>(rows: Rows16<'_>, at: usize, run: usize, to: &mut R) {
    to.whole::<false, false>(run, iq4_values::<S>(rows, at + 2), half::<S>(rows, at), S::splat(0.0));
}

#[inline(always)]
fn iq4_xs<S: Simd, R: Runs<S>>(rows: Rows16<'_>, at: usize, run: usize, to: &mut R) {
    let (first, mut low) = (S::column(rows, at), S::column(rows, at + 4));
    let (d, mut high) = (S::halves(first), S::shr::<16>(first));
    for g in 0..8 {
        let bits = S::or(S::and(low, S::words(0xf)), S::and(S::shl::<4>(high), S::words(0x30)));
        let scale = S::mul(d, S::float(S::plus(bits, S::words(0u32.wrapping_sub(32)))));
        (low, high) = (S::shr::<4>(low), S::shr::<2>(high));
        to.whole::<false, false>(run + g, iq4_values::<S>(rows, at + 8 + 16 * g), scale, S::splat(0.0));
    }
}
