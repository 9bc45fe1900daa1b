//! What the tests share: goldens, models opened over some ranks, steps and probes.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use npyz::npz::NpzArchive;
use shardwright_cpu::{Activations, CpuExecutor, CpuOptions};
use shardwright_gguf::Reader;
use shardwright_model::arch;
use shardwright_model::exec::*;
use shardwright_model::hyper::{Options, Source};
use shardwright_model::op::Description;
use shardwright_model::plan::{RankPlan, legal_ranks, plan};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The folder of the goldens: all of them where the environment says so, else those that come with the source. Where the tests are not run
/// where they were built, that is below the working folder.
pub fn data() -> PathBuf {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data");
    match std::env::var_os("SHARDWRIGHT_ORACLE") {
        Some(dir) => dir.into(),
        None => Some(built()).filter(|dir| dir.exists()).unwrap_or_else(|| "tests/data".into()),
    }
}

/// A file of the goldens; without it says which test is skipped.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = data().join(name);
    if path.exists() {
        return Some(path);
    }
    assert!(std::env::var_os("SHARDWRIGHT_ORACLE").is_none(), "{} is missing", path.display());
    println!("skipped: {name} is only in the full set of goldens (SHARDWRIGHT_ORACLE)");
    None
}

/// Every golden that is here: its name and its arrays.
pub fn goldens() -> Vec<(String, Gold)> {
    let mut names: Vec<String> = std::fs::read_dir(data().join("golden"))
        .unwrap()
        .filter_map(|e| Some(e.unwrap().file_name().to_str()?.strip_suffix(".npz")?.to_owned()))
        .filter(|n| !n.ends_with("-mtp"))
        .collect();
    names.sort();
    assert!(names.len() >= 6, "the goldens are missing");
    names.into_iter().map(|n| (n.clone(), Gold::open(&format!("golden/{n}.npz")).unwrap())).collect()
}

/// The model files of a golden: the plain one, and those with the same weights in another layout.
pub fn files(name: &str) -> Vec<PathBuf> {
    let mut all = vec![data().join(format!("models/{name}.gguf"))];
    for other in ["shuffled", "legacykvb"] {
        let path = data().join(format!("models/{name}-{other}.gguf"));
        all.extend(path.exists().then_some(path));
    }
    all
}

/// Arrays of one `.npz` file.
pub struct Gold(BTreeMap<String, (Vec<usize>, Vec<f64>)>);

impl Gold {
    pub fn open(name: &str) -> Option<Gold> {
        let mut archive = NpzArchive::open(find(name)?).unwrap();
        let names: Vec<String> = archive.array_names().map(str::to_owned).collect();
        let mut read = |n: &String| {
            let npy = archive.by_name(n).unwrap().unwrap();
            let shape = npy.shape().iter().map(|d| *d as usize).collect();
            let kind = npy.dtype().descr();
            let kind = kind.trim_matches(|c: char| "'<|=".contains(c)).to_owned();
            let data = match kind.as_str() {
                "f4" => npy.into_vec::<f32>().unwrap().into_iter().map(f64::from).collect(),
                "i4" => npy.into_vec::<i32>().unwrap().into_iter().map(f64::from).collect(),
                "i2" => npy.into_vec::<i16>().unwrap().into_iter().map(f64::from).collect(),
                "u1" => npy.into_vec::<u8>().unwrap().into_iter().map(f64::from).collect(),
                other => panic!("{n}: array of {other}"),
            };
            (n.clone(), (shape, data))
        };
        Some(Gold(names.iter().map(&mut read).collect()))
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub fn shape(&self, name: &str) -> &[usize] {
        &self.0.get(name).unwrap_or_else(|| panic!("no array {name}")).0
    }

    pub fn all(&self, name: &str) -> &[f64] {
        &self.0.get(name).unwrap_or_else(|| panic!("no array {name}")).1
    }

    /// Element `at` of the leading dimensions: a run of the last ones.
    pub fn at(&self, name: &str, at: &[usize]) -> &[f64] {
        let shape = self.shape(name);
        let len: usize = shape[at.len()..].iter().product();
        let index = at.iter().zip(shape).fold(0, |sum, (i, n)| sum * n + i);
        &self.all(name)[index * len..][..len]
    }

    pub fn ints(&self, name: &str) -> Vec<usize> {
        self.all(name).iter().map(|v| *v as usize).collect()
    }

    pub fn ids(&self, prompt: usize) -> Vec<u32> {
        self.all(&format!("p{prompt}_ids")).iter().map(|v| *v as u32).collect()
    }

    pub fn prompts(&self) -> usize {
        (0..).take_while(|p| self.has(&format!("p{p}_ids"))).count()
    }
}

/// A limit of the goldens for a class of precision.
pub fn tolerance(name: &str, class: &str, key: &str) -> f64 {
    let text = std::fs::read_to_string(data().join("golden/tolerances.json")).unwrap();
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    all[name][class][key].as_f64().unwrap_or_else(|| panic!("no tolerance {class} {key} for {name}"))
}

/// Limit on the largest difference of a logit with exact activations.
pub fn limit(name: &str) -> f64 {
    tolerance(name, "exact", "max_abs")
}

/// How a model is opened.
#[derive(Clone, Copy)]
pub struct Setup {
    pub ranks: usize,
    pub threads: usize,
    pub options: Options,
    pub activations: Activations,
    pub wire: Wire,
}

pub const PLAIN: Setup = Setup {
    ranks: 1,
    threads: 2,
    options: Options { deal_embedding: false, dense_attention: false },
    activations: Activations::F32,
    wire: Wire::F32,
};

pub fn over(ranks: usize) -> Setup {
    Setup { ranks, ..PLAIN }
}

/// Cache blocks of a test's executor.
pub const BLOCKS: usize = 24;

pub fn described(file: &Reader, options: Options) -> (Description, Option<Description>) {
    let has = |n: &str| Some(file.tensor(n).is_some());
    let h = arch::read(&Source { meta: file.meta(), has: &has, options }).unwrap();
    (arch::describe(&h), arch::draft(&h))
}

pub fn legal(path: &Path) -> Vec<usize> {
    let file = Reader::open(path).unwrap();
    legal_ranks(&described(&file, PLAIN.options).0, &|n| file.tensor(n)).unwrap()
}

pub fn open(path: &Path, s: Setup) -> CpuExecutor {
    let file = Arc::new(Reader::open(path).unwrap());
    let (trunk, draft) = described(&file, s.options);
    let cut = |d: &Description| -> Vec<RankPlan> { plan(d, &|n| file.tensor(n), s.ranks).unwrap() };
    let (trunk_plans, draft_plans) = (cut(&trunk), draft.as_ref().map(cut));
    let options = CpuOptions {
        threads: s.threads,
        rows: 256,
        blocks: BLOCKS,
        context: 512,
        activations: s.activations,
        ranks: Ranks { wire: s.wire, check: false },
    };
    CpuExecutor::new(file.clone(), (&trunk, trunk_plans), draft.as_ref().zip(draft_plans), options).unwrap()
}

/// A step of whole runs: for each sequence its tokens, their first position and its blocks.
pub fn step_of(runs: &[(&[u32], usize, &[u32])], want: Want) -> StepBatch {
    let mut b = StepBatch::default();
    for (s, (tokens, first, table)) in runs.iter().enumerate() {
        b.tokens.extend(*tokens);
        b.positions.extend((0..tokens.len()).map(|i| (first + i) as u32));
        b.sequences.extend(tokens.iter().map(|_| s as u32));
        b.tables.push(table.to_vec());
    }
    b.wants = vec![want; b.rows()];
    b
}

/// Blocks in order, enough for any golden.
pub const TABLE: [u32; 4] = [0, 1, 2, 3];

pub fn logits(out: &StepOutput) -> Vec<Vec<f32>> {
    out.rows
        .iter()
        .map(|r| match r {
            RowOutput::Logits(l) => l.clone(),
            other => panic!("{other:?}"),
        })
        .collect()
}

/// Logits of every position, in one step.
pub fn forward(exec: &mut dyn Executor, ids: &[u32]) -> Vec<Vec<f32>> {
    logits(&exec.step(&step_of(&[(ids, 0, &TABLE)], Want::Logits)).unwrap())
}

/// Values of a step by path.
#[derive(Default)]
pub struct Taps(pub BTreeMap<String, (usize, Vec<f32>)>);

impl Probe for Taps {
    fn see(&mut self, v: &Seen<'_>) {
        self.0.insert(v.path.to_owned(), (v.width, v.data.to_vec()));
    }
}

impl Taps {
    pub fn row(&self, path: &str, i: usize) -> &[f32] {
        let (width, data) = self.0.get(path).unwrap_or_else(|| panic!("no value {path}"));
        &data[i * width..][..*width]
    }
}

pub fn argmax(row: &[f32]) -> u32 {
    (0..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best }) as u32
}

/// The largest difference.
pub fn apart(a: &[f32], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max)
}

/// Greedy tokens after a prompt, one step each, through candidates.
pub fn greedy(exec: &mut dyn Executor, prompt: &[u32], n: usize) -> Vec<u32> {
    let mut ids = prompt.to_vec();
    let mut done = 0;
    while ids.len() < prompt.len() + n {
        let out = exec.step(&step_of(&[(&ids[done..], done, &TABLE)], Want::Candidates)).unwrap();
        done = ids.len();
        match out.rows.last() {
            Some(RowOutput::Candidates { ids: best, .. }) => ids.push(best[0]),
            other => panic!("{other:?}"),
        }
    }
    ids.split_off(prompt.len())
}

/// All greedy tokens after every prompt.
pub fn check_greedy(gold: &Gold, exec: &mut dyn Executor, what: &str) {
    for p in 0..gold.prompts() {
        let ids = gold.ids(p);
        let prompt = ids.len() - gold.all(&format!("p{p}_greedy_margin")).len();
        assert_eq!(greedy(exec, &ids[..prompt], ids.len() - prompt), ids[prompt..], "{what} p{p}");
    }
}

/// Of an executor that rounds what ranks add to bf16: the greedy tokens up to the first that rounding may choose. A choice between two
/// experts or positions that are as good moves a row by any amount, so where tokens are others there must have been one: `plain` has made
/// the other, which does not round. Gives the number of such prompts.
pub fn check_bound_greedy<E: Executor>(
    name: &str,
    gold: &Gold,
    exec: &mut E,
    plain: impl Fn() -> E,
    what: &str,
) -> usize {
    let slack = 2.0 * tolerance(name, "bf16", "p50_row_max");
    let mut others = 0;
    for p in 0..gold.prompts() {
        let (ids, margins) = (gold.ids(p), gold.all(&format!("p{p}_greedy_margin")));
        let bound = margins.iter().position(|m| *m < slack).unwrap_or(margins.len());
        let prompt = ids.len() - margins.len();
        let found = greedy(exec, &ids[..prompt], bound);
        if found == ids[prompt..][..bound] {
            continue;
        }
        let read = &ids[..prompt + bound];
        let parted = choices(exec, read) != choices(&mut plain(), read);
        println!("{what} p{p}: other tokens, other choices: {parted}");
        assert!(parted, "{what} p{p}: {found:?}");
        others += 1;
    }
    others
}

/// The experts and positions that were chosen for some tokens.
fn choices(exec: &mut dyn Executor, ids: &[u32]) -> Vec<Vec<f32>> {
    struct Choices(Vec<Vec<f32>>);
    impl Probe for Choices {
        fn see(&mut self, v: &Seen<'_>) {
            match v.op {
                "Index" => self.0.push(v.data.to_vec()),
                "Route" => self.0.extend(v.data.chunks(v.width).map(|row| row[..v.width / 2].to_vec())),
                _ => {}
            }
        }
    }
    let mut seen = Choices(vec![]);
    exec.step_probed(&step_of(&[(ids, 0, &TABLE)], Want::Nothing), Some(&mut seen)).unwrap();
    seen.0
}

/// Logits within the limit, and the likeliest token everywhere the same.
pub fn check_logits(name: &str, gold: &Gold, array: &str, exec: &mut dyn Executor, what: &str) {
    check_prompts(name, gold, array, exec, what, gold.prompts());
}

/// The same for the first prompts.
pub fn check_prompts(
    name: &str,
    gold: &Gold,
    array: &str,
    exec: &mut dyn Executor,
    what: &str,
    prompts: usize,
) {
    let limit = limit(name);
    for p in 0..prompts {
        let got = forward(exec, &gold.ids(p));
        let mut worst = 0f64;
        for (n, at) in gold.ints(&format!("p{p}_logit_pos")).into_iter().enumerate() {
            let want = gold.at(&format!("p{p}_{array}"), &[n]);
            worst = worst.max(apart(&got[at], want));
            let best = (0..want.len()).fold(0, |b, i| if want[i] > want[b] { i } else { b });
            assert_eq!(argmax(&got[at]), best as u32, "{what} p{p} position {at}");
        }
        println!("{what} p{p} {array}: {worst:.2e} of {limit:.2e}");
        assert!(worst <= limit, "{what} p{p} {array}: {worst} > {limit}");
    }
}

/// Sorted values at a share of the way.
fn quantile(v: &[f64], q: f64) -> f64 {
    let mut v = v.to_vec();
    v.sort_by(f64::total_cmp);
    let at = q * (v.len() - 1) as f64;
    let (low, high) = (v[at.floor() as usize], v[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

fn log_softmax(v: &[f64]) -> Vec<f64> {
    let most = v.iter().copied().fold(f64::MIN, f64::max);
    let all = most + v.iter().map(|x| (x - most).exp()).sum::<f64>().ln();
    v.iter().map(|x| x - all).collect()
}

/// 8-bit activations, of which there are some if `rounds`.
pub fn check_a8(name: &str, gold: &Gold, exec: &mut dyn Executor, prompts: usize, rounds: bool) {
    let median = check_class(name, gold, exec, prompts, "a8");
    assert!(!rounds || median > 0.01, "{name}: the activations were not rounded");
}

/// What is rounded is judged by statistics over all rows: a flipped choice moves single rows by any amount. Gives the median
/// of the rows' largest differences, over the first `prompts` prompts.
pub fn check_class(name: &str, gold: &Gold, exec: &mut dyn Executor, prompts: usize, class: &str) -> f64 {
    let (mut worst, mut squares, mut kl, mut same) = (vec![], vec![], vec![], vec![]);
    for p in 0..prompts {
        let got = forward(exec, &gold.ids(p));
        for (n, at) in gold.ints(&format!("p{p}_logit_pos")).into_iter().enumerate() {
            let want = gold.at(&format!("p{p}_logits"), &[n]);
            let got: Vec<f64> = got[at].iter().map(|v| f64::from(*v)).collect();
            worst.push(got.iter().zip(want).map(|(g, w)| (g - w).abs()).fold(0.0, f64::max));
            squares.extend(got.iter().zip(want).map(|(g, w)| (g - w) * (g - w)));
            let (a, b) = (log_softmax(want), log_softmax(&got));
            kl.push(a.iter().zip(&b).map(|(a, b)| a.exp() * (a - b)).sum());
            let best = |v: &[f64]| (0..v.len()).fold(0, |b, i| if v[i] > v[b] { i } else { b });
            same.push(f64::from(u8::from(best(want) == best(&got))));
        }
    }
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let limit = |key: &str| tolerance(name, class, key);
    let stats = [
        ("p50_row_max", quantile(&worst, 0.5)),
        ("p90_row_max", quantile(&worst, 0.9)),
        ("rms", mean(&squares).sqrt()),
        ("kl_mean", mean(&kl)),
    ];
    println!("{name} {class}: {stats:.3?}, best token {:.3}", mean(&same));
    for (key, got) in stats {
        assert!(got <= limit(key), "{name} {key}: {got} > {}", limit(key));
    }
    assert!(mean(&same) >= limit("top1_agree"), "{name}");
    stats[0].1
}

/// The next-token layer: row t takes token t + 1 and the trunk's hidden state of token t.
pub fn check_draft(name: &str, exec: &mut dyn Executor) {
    let gold = Gold::open(&format!("golden/{name}-mtp.npz")).unwrap();
    let ids: Vec<u32> = gold.ints("ids").into_iter().map(|i| i as u32).collect();
    let mut trunk = step_of(&[(&ids, 0, &TABLE)], Want::Nothing);
    trunk.want_hidden = true;
    let hidden = exec.step(&trunk).unwrap().hidden;
    let width = exec.limits().width;
    let mut draft = step_of(&[(&ids[1..], 0, &TABLE)], Want::Logits);
    draft.hidden = Some(hidden[..(ids.len() - 1) * width].to_vec());
    let got = logits(&exec.step(&draft).unwrap());
    for (n, at) in gold.ints("pos").into_iter().enumerate() {
        let off = apart(&got[at], gold.at("logits", &[n]));
        assert!(off <= limit(name), "{name} draft position {at}: {off}");
    }
    let best: Vec<usize> = got.iter().map(|l| argmax(l) as usize).collect();
    assert_eq!(best, gold.ints("argmax"), "{name}");
}
