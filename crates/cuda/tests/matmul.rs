//! Products of many rows by tensor cores, against sums of decoded weights: every block format, rows and outputs that fill no tile,
//! heads, biases, gates, rounded outputs, rows that want an answer; and experts whose rows were grouped on the device.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod emulator;

use emulator::{Emulator, Random};
use shardwright_cuda::device::{Device, Launch};
use shardwright_cuda::planes::lay;
use shardwright_cuda::unit::Unit;
use shardwright_gguf::QuantType;

const TILE: usize = 64;
const SPAN: usize = 128;
/// Rows that a step has room for.
const MAX_ROWS: usize = 80;

/// A device with kernels on it.
struct Bench(Emulator);

impl Bench {
    fn put<T: bytemuck::NoUninit>(&mut self, data: &[T]) -> u64 {
        let bytes = bytemuck::cast_slice(data);
        let address = self.0.alloc(bytes.len()).unwrap();
        self.0.upload(address, bytes).unwrap();
        address
    }

    fn get<T: bytemuck::Pod>(&mut self, address: u64, count: usize) -> Vec<T> {
        let mut data = vec![T::zeroed(); count];
        self.0.download(address, bytemuck::cast_slice_mut(&mut data)).unwrap();
        data
    }

    fn launch(&mut self, unit: Unit, grid: [usize; 3], block: u32, args: Vec<u64>) {
        let unit = unit.int("MAX_ROWS", MAX_ROWS);
        let kernel = self.0.load(&[unit]).unwrap()[0];
        let grid = grid.map(|n| n as u32);
        self.0.launch(&Launch { kernel, grid, block, shared: 0, args }).unwrap();
    }

    /// A step of so many rows, of which some want an answer.
    fn step(&mut self, rows: usize, wanted: &[u32]) -> u64 {
        let mut words = vec![rows as u32, wanted.len() as u32];
        words.resize(4 + 3 * MAX_ROWS, 0);
        words.extend(wanted);
        words.resize(4 + 4 * MAX_ROWS, 0);
        self.put(&words)
    }
}

/// Rows of activations, rounded, and what they stand for. What lies behind the last row is no number.
struct Rows {
    codes: Vec<i8>,
    scales: Vec<[f32; 4]>,
    values: Vec<f32>,
}

impl Rows {
    fn random(random: &mut Random, count: usize, width: usize) -> Rows {
        let (mut codes, mut scales, mut values) = (vec![], vec![], vec![]);
        for _ in 0..count * width / 32 {
            let scale = f32::from(random.byte()) / 2048.0 + 0.001;
            let here: Vec<i8> = (0..32).map(|_| (random.byte() as i8).max(-127)).collect();
            let half = |n: usize| here[16 * n..][..16].iter().map(|c| f32::from(*c)).sum::<f32>() * scale;
            scales.push([scale, half(0), scale, half(1)]);
            values.extend(here.iter().map(|c| f32::from(*c) * scale));
            codes.extend(here);
        }
        scales.extend(vec![[f32::NAN; 4]; 4 * width]);
        codes.extend(vec![77; 64 * width]);
        Rows { codes, scales, values }
    }

    fn put(&self, bench: &mut Bench) -> [u64; 2] {
        [bench.put(&self.codes), bench.put(&self.scales)]
    }
}

/// Copies of a matrix.
struct Matrix {
    quant: QuantType,
    cols: usize,
    bytes: Vec<u8>,
    values: Vec<f32>,
}

impl Matrix {
    fn random(random: &mut Random, quant: QuantType, rows: usize, cols: usize) -> Matrix {
        let bytes = random.rows(quant, rows, cols, 1e3);
        let mut values = vec![0.0; rows * cols];
        quant.decode(&bytes, &mut values);
        let mut laid = vec![];
        bytes.chunks(bytes.len() / rows).for_each(|row| lay(quant, row, &mut laid));
        Matrix { quant, cols, bytes: laid, values }
    }

    fn kind(&self, unit: &mut Unit) -> String {
        unit.decoder(self.quant, self.quant.row_bytes(self.cols).unwrap(), self.cols)
    }

    /// Row n times `x`, and the sum of the terms' sizes.
    fn dot(&self, n: usize, x: &[f32]) -> [f64; 2] {
        let terms = self.values[n * self.cols..][..self.cols].iter().zip(x);
        let terms = terms.map(|(w, x)| f64::from(*w) * f64::from(*x));
        terms.fold([0.0; 2], |[sum, size], term| [sum + term, size + term.abs()])
    }
}

fn near(got: f32, [want, size]: [f64; 2], what: &str) {
    let off = (f64::from(got) - want).abs();
    assert!(off <= 1e-5 * size.max(1e-20), "{what}: {got} for {want}, {off} of {size}");
}

fn quantized() -> impl Iterator<Item = QuantType> {
    QuantType::ALL.iter().copied().filter(|q| q.is_weight() && q.group().is_some())
}

/// A launch of parts of `outs` outputs each: what the kernel is told of them, and their weights.
struct Product<'a> {
    heads: usize,
    outs: &'a [usize],
    /// Kinds of a part's weights, and its form.
    parts: Vec<[String; 2]>,
    unit: Unit,
}

impl Product<'_> {
    /// What it makes of rows, the parts' weights and second pointers given; nothing has been where it writes.
    fn on(self, bench: &mut Bench, step: u64, rows: usize, x: [u64; 2], w: &[[u64; 2]]) -> Vec<Vec<f32>> {
        let mut unit = self.unit.int("TILE", TILE).int("HEADS", self.heads).int("PARTS", self.parts.len());
        let mut end = 0;
        let names = [("PART0", "END0"), ("PART1", "END1"), ("PART2", "END2"), ("PART3", "END3")];
        for (([kinds, form], outs), (name, ends)) in self.parts.iter().zip(self.outs).zip(names) {
            end += outs.div_ceil(if form == "GATED" { SPAN / 2 } else { SPAN });
            unit = unit.int(name, format!("{kinds}, {outs}, {form}, 0")).int(ends, end);
        }
        let place = |outs: &usize| vec![f32::NAN; MAX_ROWS * self.heads * outs];
        let out: Vec<u64> = self.outs.iter().map(|outs| bench.put(&place(outs))).collect();
        let mut args = vec![step, x[0], x[1]];
        for i in 0..2 {
            args.extend((0..4).map(|part| w.get(part).map_or(0, |w| w[i])));
        }
        args.extend((0..4).map(|part| out.get(part).copied().unwrap_or(0)));
        args.extend([0, 0]);
        bench.launch(unit, [rows.div_ceil(TILE), end, self.heads], 256, args);
        out.iter().zip(self.outs).map(|(at, outs)| bench.get(*at, MAX_ROWS * self.heads * outs)).collect()
    }
}

/// One part, of an even and, where blocks are of 32, an odd number of groups.
#[test]
fn every_format_is_multiplied() {
    let Some(device) = Emulator::new() else { return };
    let (mut bench, mut random) = (Bench(device), Random(3));
    for quant in quantized() {
        let block = quant.block_len().max(32);
        for (blocks, rows, outs) in [(3, 70, 150), (2, 17, 33)] {
            let cols = blocks * block;
            let (x, m) =
                (Rows::random(&mut random, rows, cols), Matrix::random(&mut random, quant, outs, cols));
            let mut unit = Unit::new("matmul").int("ANSWER", 0);
            let kind = m.kind(&mut unit);
            let parts = vec![[format!("{kind}, {kind}"), "PLAIN".into()]];
            let (step, at, w) = (bench.step(rows, &[]), x.put(&mut bench), bench.put(&m.bytes));
            let product = Product { heads: 1, outs: &[outs], parts, unit };
            let out = product.on(&mut bench, step, rows, at, &[[w, 0]]).swap_remove(0);
            for i in 0..rows {
                for n in 0..outs {
                    let want = m.dot(n, &x.values[i * cols..][..cols]);
                    near(out[i * outs + n], want, &format!("{quant} x {cols}, row {i}, output {n}"));
                }
            }
            assert!(out[rows * outs..].iter().all(|v| v.is_nan()), "{quant}: the step has {rows} rows");
        }
    }
}

/// Four parts of several formats, a bias, a gate, two heads.
#[test]
fn parts_are_multiplied_together() {
    let Some(device) = Emulator::new() else { return };
    let (mut bench, mut random) = (Bench(device), Random(5));
    let (rows, heads, cols, outs) = (66, 2, 768, [40, 130, 8, 129]);
    let types = [QuantType::Q4_K, QuantType::Q6_K, QuantType::Q8_0, QuantType::Q5_K];
    let all: Vec<Matrix> =
        (0..4).map(|i| Matrix::random(&mut random, types[i], heads * outs[i], cols)).collect();
    let gate = Matrix::random(&mut random, QuantType::Q2_K, heads * outs[3], cols);
    let bias: Vec<f32> = (0..outs[1]).map(|n| n as f32 - 60.0).collect();
    let x = Rows::random(&mut random, rows, heads * cols);
    let mut unit = Unit::new("matmul").int("ANSWER", 0);
    let kinds: Vec<String> = all.iter().map(|m| m.kind(&mut unit)).collect();
    let second = gate.kind(&mut unit);
    let forms = ["PLAIN", "BIASED", "PLAIN", "GATED"];
    let other = |i: usize| if i == 3 { &second } else { &kinds[i] };
    let parts = (0..4).map(|i| [format!("{}, {}", kinds[i], other(i)), forms[i].into()]).collect();
    let (step, at, bias_at, gate_at) =
        (bench.step(rows, &[]), x.put(&mut bench), bench.put(&bias), bench.put(&gate.bytes));
    let w: Vec<[u64; 2]> =
        all.iter().zip([0, bias_at, 0, gate_at]).map(|(m, v)| [bench.put(&m.bytes), v]).collect();
    let out = Product { heads, outs: &outs, parts, unit }.on(&mut bench, step, rows, at, &w);
    for (p, m) in all.iter().enumerate() {
        for (i, h, n) in
            (0..rows).flat_map(|i| (0..heads).flat_map(move |h| (0..outs[p]).map(move |n| (i, h, n))))
        {
            let x = &x.values[(i * heads + h) * cols..][..cols];
            let [mut sum, mut size] = m.dot(h * outs[p] + n, x);
            if p == 1 {
                sum += f64::from(bias[n]);
            }
            if p == 3 {
                let [b, other] = gate.dot(h * outs[p] + n, x);
                let silu = sum / (1.0 + (-sum).exp());
                (sum, size) = (silu * b, size * b.abs() + silu.abs() * other + size * other * 1e-5);
            }
            near(
                out[p][(i * heads + h) * outs[p] + n],
                [sum, size],
                &format!("part {p}, row {i}, head {h}, output {n}"),
            );
        }
    }
}

/// Logits of two rows of a step.
#[test]
fn rows_that_want_an_answer_lie_one_behind_the_other() {
    let Some(device) = Emulator::new() else { return };
    let (mut bench, mut random) = (Bench(device), Random(9));
    let (rows, cols, outs, wanted) = (70, 256, 20, [3u32, 69]);
    let (x, m) =
        (Rows::random(&mut random, rows, cols), Matrix::random(&mut random, QuantType::Q6_K, outs, cols));
    let mut unit = Unit::new("matmul").int("ANSWER", 1);
    let kind = m.kind(&mut unit);
    let parts = vec![[format!("{kind}, {kind}"), "PLAIN".into()]];
    let (step, at, w) = (bench.step(rows, &wanted), x.put(&mut bench), bench.put(&m.bytes));
    let product = Product { heads: 1, outs: &[outs], parts, unit };
    let out = product.on(&mut bench, step, rows, at, &[[w, 0]]).swap_remove(0);
    for (i, row) in wanted.into_iter().enumerate() {
        for n in 0..outs {
            near(out[i * outs + n], m.dot(n, &x.values[row as usize * cols..][..cols]), "an answer");
        }
    }
    assert!(out[2 * outs..].iter().all(|v| v.is_nan()), "two rows want an answer");
}

/// Experts of whom some are held here, one by nearly all rows wanted, one by none.
struct Experts {
    used: usize,
    all: usize,
    first: usize,
    held: usize,
    /// Ids and weights of each row.
    picked: Vec<f32>,
}

impl Experts {
    fn random(random: &mut Random, rows: usize) -> Experts {
        let (used, all, first, held) = (3, 9, 2, 5);
        let mut picked = vec![];
        for _ in 0..rows {
            let mut ids = vec![4];
            while ids.len() < used {
                let e = random.byte() as usize % all;
                if !ids.contains(&e) && e != 3 {
                    ids.push(e);
                }
            }
            ids.sort_unstable();
            picked.extend(ids.iter().map(|e| *e as f32));
            picked.extend((0..used).map(|_| f32::from(random.byte()) / 64.0));
        }
        Experts { used, all, first, held, picked }
    }

    fn unit(&self, stem: &'static str) -> Unit {
        Unit::new(stem).int("USED", self.used).int("FIRST", self.first).int("COPIES", self.held)
    }

    /// The experts of a row that are held here, with their weights, and the number of the ask.
    fn asks(&self, i: usize) -> impl Iterator<Item = (usize, usize, f32)> {
        let row = &self.picked[i * 2 * self.used..][..2 * self.used];
        let asks = (0..self.used).map(move |j| (row[j] as usize, i * self.used + j, row[self.used + j]));
        asks.filter(|(e, ..)| (self.first..self.first + self.held).contains(e))
    }
}

#[test]
fn experts_take_the_rows_that_ask_for_them() {
    let Some(device) = Emulator::new() else { return };
    let (mut bench, mut random) = (Bench(device), Random(11));
    let (rows, cols, inner, outs) = (75, 512, 160, 140);
    let experts = Experts::random(&mut random, rows);
    let (used, held) = (experts.used, experts.held);
    let [gate, up] =
        [QuantType::Q4_K, QuantType::Q6_K].map(|q| Matrix::random(&mut random, q, held * inner, cols));
    let down = Matrix::random(&mut random, QuantType::Q5_0, held * outs, inner);
    let x = Rows::random(&mut random, rows, cols);
    let beside: Vec<f32> = (0..rows * outs).map(|n| n as f32).collect();

    let (step, at, picked) = (bench.step(rows, &[]), x.put(&mut bench), bench.put(&experts.picked));
    let [asks, tiles] = [bench.put(&vec![-1i32; rows * used]), bench.put(&vec![-1i32; 4 * (rows + held)])];
    let unit = experts.unit("group").int("TILE", TILE);
    bench.launch(unit, [1, 1, 1], 1024, vec![step, picked, asks, tiles]);
    let found: Vec<i32> = bench.get(tiles, 4 * (rows + held));
    let runs: usize = (0..experts.all)
        .map(|e| (0..rows).flat_map(|i| experts.asks(i)).filter(|a| a.0 == e).count().div_ceil(TILE))
        .sum();
    assert_eq!(found[0] as usize, runs, "tiles");

    // the first half: rounded, so the rounding is taken back
    let mut unit = Unit::new("matmul_experts").int("TILE", TILE).int("PER", used).int("BLOCKS", 3);
    let [g, u] = [&gate, &up].map(|m| m.kind(&mut unit));
    let unit = unit.int("PART", format!("{g}, {u}, {inner}, GATED, 1"));
    let [codes, scales] =
        [bench.put(&vec![99i8; rows * used * inner]), bench.put(&vec![f32::NAN; rows * used * inner / 8])];
    let [w, v] = [&gate, &up].map(|m| bench.put(&m.bytes));
    bench.launch(unit, [3, 1, 1], 256, vec![asks, tiles, w, v, at[0], at[1], 0, codes, scales]);
    let (q, s): (Vec<i8>, Vec<[f32; 4]>) =
        (bench.get(codes, rows * used * inner), bench.get(scales, rows * used * inner / 32));
    let act: Vec<f32> = q.iter().enumerate().map(|(i, q)| f32::from(*q) * s[i / 32][0]).collect();
    for (e, ask, _) in (0..rows).flat_map(|i| experts.asks(i)) {
        let (e, x) = (e - experts.first, &x.values[ask / used * cols..][..cols]);
        for n in 0..inner {
            let [a, b] = [&gate, &up].map(|m| m.dot(e * inner + n, x)[0]);
            let (want, scale) = (a / (1.0 + (-a).exp()) * b, f64::from(s[(ask * inner + n) / 32][0]));
            let off = (f64::from(act[ask * inner + n]) - want).abs();
            assert!(off <= 0.501 * scale, "ask {ask}, {n}: {off} of {scale}");
        }
    }

    // the second half, and what a row gets of it
    let mut unit = Unit::new("matmul_experts").int("TILE", TILE).int("PER", 1).int("BLOCKS", 2);
    let kind = down.kind(&mut unit);
    let unit = unit.int("PART", format!("{kind}, {kind}, {outs}, PLAIN, 0"));
    let [part, out] = [used, 1].map(|n| bench.put(&vec![f32::NAN; rows * n * outs]));
    let w = bench.put(&down.bytes);
    bench.launch(unit, [100, 1, 1], 256, vec![asks, tiles, w, 0, codes, scales, part, 0, 0]);
    let unit = experts.unit("weigh").int("WIDTH", outs).int("BESIDE", 1);
    let beside_at = bench.put(&beside);
    bench.launch(unit, [1, 1, rows], 256, vec![step, picked, part, beside_at, out]);
    let out: Vec<f32> = bench.get(out, rows * outs);
    for i in 0..rows {
        for n in 0..outs {
            let start = f64::from(beside[i * outs + n]);
            let want = experts.asks(i).fold([start, start.abs()], |[sum, size], (e, ask, weight)| {
                let [v, of] = down.dot((e - experts.first) * outs + n, &act[ask * inner..][..inner]);
                [sum + f64::from(weight) * v, size + f64::from(weight) * of]
            });
            near(out[i * outs + n], want, &format!("row {i}, output {n}"));
        }
    }
}
