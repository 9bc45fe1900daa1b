//! Every kernel compiles for every architecture, without warnings, and needs no more than all of them have.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod compiler;

use std::sync::Mutex;
use std::thread;

use compiler::nvrtc;
use shardwright_cuda::gate::units;
use shardwright_cuda::nvrtc::Nvrtc;
use shardwright_cuda::unit::Unit;
use shardwright_cuda::wave::usual;

const ARCHITECTURES: [&str; 7] = ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a"];
/// Narrows them, for quick looks: names with commas between.
const SOME: &str = "SHARDWRIGHT_ARCHITECTURES";
/// Narrows the kernels: words that their labels have, with commas between.
const LABELS: &str = "SHARDWRIGHT_LABELS";
/// Kernels that may spill: stem, some of its numbers, and at most how many bytes, stored and loaded, on each architecture. The last
/// step of an answer is one block; heads of latent attention without rounding are for comparing; pairs of rows of 7,168 fill registers
/// to the last. Cards of more multiprocessors are dealt more blocks of fewer registers: there a few words are in memory of experts'
/// second halves of wide pieces beside a shared one, of experts that are not rounded or whose rows are 4,096, and of a vocabulary in
/// Q8_0 of wide rows.
const SPILLS: [Spill; 8] = [
    ("answer", &["LAST=1"], [32, 72, 72, 0, 8, 8, 104]),
    ("linear", &["TILE=8", "PREPARE=MERGED", "FAST=0"], [0, 0, 0, 0, 516, 516, 516]),
    ("linear", &["TILE=1", "GATED,", "COLS=7168"], [0, 0, 0, 8, 0, 0, 36]),
    ("linear", &["TILE=1", "ANSWER=1", "COLS=7168"], [0, 0, 0, 0, 64, 64, 232]),
    ("linear", &["TILE=2", "ANSWER=1", "COLS=6144"], [0, 0, 0, 0, 56, 56, 48]),
    ("experts", &["CHOOSE=1", "QUANT=QUANT_Q4_K", "COLS=4096"], [0, 0, 0, 0, 0, 0, 16]),
    ("down", &["QUANT=QUANT_Q5_K", "SHARED=1"], [0, 0, 0, 0, 40, 40, 120]),
    ("experts", &["FAST=0", "CHOOSE=1"], [0, 0, 0, 0, 0, 0, 36]),
];
type Spill = (&'static str, &'static [&'static str], [u32; ARCHITECTURES.len()]);
/// The most shared memory that a block can have on each of them.
const SHARED: u32 = 99 << 10;

/// What a kernel needs, as the assembler reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Needs {
    registers: u32,
    /// Shared memory whose size is in the source.
    shared: u32,
    /// Bytes written to memory, and read back, for want of registers.
    spilled: u32,
}

impl Needs {
    fn read(log: &str) -> Option<Needs> {
        let all = |phrase| log.lines().filter_map(move |line| number_before(line, phrase));
        Some(Needs {
            registers: all(" registers").max()?,
            shared: all(" bytes smem").max().unwrap_or(0),
            spilled: all(" bytes spill stores").sum::<u32>() + all(" bytes spill loads").sum::<u32>(),
        })
    }
}

fn number_before(line: &str, phrase: &str) -> Option<u32> {
    line.split_once(phrase)?.0.rsplit([' ', ',']).next()?.parse().ok()
}

/// What is wrong with a kernel that has compiled.
fn complaints(unit: &Unit, architecture: &str, log: &str) -> Vec<String> {
    let warnings = log.lines().filter(|l| l.contains("warning")).map(str::to_owned);
    let Some(needs) = Needs::read(log) else {
        return warnings.chain(["no report of what it needs".to_owned()]).collect();
    };
    let shared = needs.shared + unit.shared();
    let much = (shared > SHARED).then(|| format!("{shared} bytes of shared memory, {SHARED} is the most"));
    let label = unit.label();
    let here = |(stem, numbers, _): &&Spill| {
        *stem == unit.stem && numbers.iter().all(|number| label.split(' ').any(|n| n == *number))
    };
    let at = ARCHITECTURES.iter().position(|a| *a == architecture);
    let most = SPILLS.iter().find(here).zip(at).map_or(0, |(spill, at)| spill.2[at]);
    let spills = (needs.spilled > most).then(|| format!("{} bytes spilled", needs.spilled));
    warnings.chain(much).chain(spills).collect()
}

fn architectures() -> Vec<&'static str> {
    let some = std::env::var(SOME).ok();
    let wanted = |a: &&str| some.as_ref().is_none_or(|some| some.split(',').any(|s| s == *a));
    ARCHITECTURES.into_iter().filter(wanted).collect()
}

/// A kernel's line of the table, and what is wrong with it.
fn tried(nvrtc: &Nvrtc, unit: &Unit, architecture: &str) -> (String, Vec<String>) {
    let compiled = nvrtc.compile(unit, architecture);
    let needs = compiled.as_ref().ok().and_then(|c| Needs::read(&c.log));
    let cell = needs.map(|n| format!("{} {} {}", n.registers, n.shared + unit.shared(), n.spilled));
    let label = unit.label();
    let line = format!("{architecture:>8}{:>14}  {label}", cell.unwrap_or_default());
    let found = match compiled {
        Ok(compiled) => complaints(unit, architecture, &compiled.log),
        Err(e) => vec![e.to_string()],
    };
    (line, found.iter().map(|c| format!("{label} on {architecture}: {c}")).collect())
}

#[test]
fn every_kernel_compiles_for_every_architecture() {
    let Some(nvrtc) = nvrtc() else { return };
    let architectures = architectures();
    assert!(!architectures.is_empty(), "{SOME} names no architecture");
    // as those are that are shipped: each architecture's for the card that most have of it
    let of = |architecture: &&'static str| units(usual(architecture)).expect("all models can be lowered");
    let mut units: Vec<_> =
        architectures.iter().flat_map(|a| of(a).into_iter().map(move |u| (u, *a))).collect();
    if let Ok(words) = std::env::var(LABELS) {
        units.retain(|(unit, _)| words.split(',').all(|word| unit.label().split(' ').any(|l| l == word)));
        assert!(!units.is_empty(), "{LABELS}: no kernel has these");
    }
    println!("{nvrtc}, {} kernels: registers, bytes of shared memory, bytes spilled", units.len());
    let left = Mutex::new(units.iter());
    let next = || left.lock().unwrap().next();
    let wrong = Mutex::new(Vec::new());
    let work = || {
        while let Some((unit, architecture)) = next() {
            let (line, complaints) = tried(&nvrtc, unit, architecture);
            println!("{line}");
            wrong.lock().unwrap().extend(complaints);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().unwrap().get() {
            scope.spawn(work);
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn reports_are_read_and_judged() {
    let report = |registers: u32, shared: &str, spilled: u32| {
        format!(
            "ptxas info    : Compiling entry function 'run' for 'sm_90a'\n\
             ptxas info    : Function properties for run\n    \
             80 bytes stack frame, {spilled} bytes spill stores, {spilled} bytes spill loads\n\
             ptxas info    : Used {registers} registers, used 1 barriers, {shared}360 bytes cmem[0]"
        )
    };
    let shared = "33000 bytes smem, ";
    assert_eq!(
        Needs::read(&report(40, shared, 12)),
        Some(Needs { registers: 40, shared: 33000, spilled: 24 })
    );
    assert_eq!(Needs::read(&report(255, "", 0)), Some(Needs { registers: 255, shared: 0, spilled: 0 }));
    assert_eq!(Needs::read("warning: no report"), None);

    let check = |log: &str, wanted: &[&str]| {
        let found = complaints(&Unit::new("quantize"), "sm_90a", log);
        assert_eq!(found.len(), wanted.len(), "{found:?}");
        assert!(found.iter().zip(wanted).all(|(f, w)| f.contains(w)), "{found:?} {wanted:?}");
    };
    check(&report(40, shared, 0), &[]);
    check(&report(40, &format!("{SHARED} bytes smem, "), 0), &[]);
    check(&report(40, "101377 bytes smem, ", 0), &["101377 bytes of shared memory"]);
    check(&report(40, "", 4), &["8 bytes spilled"]);
    check(&format!("a.cu(3): warning #177-D: unused\n{}", report(40, "", 0)), &["#177-D"]);
    check("", &["no report"]);
    let given = complaints(&Unit::new("quantize").int("SHARED", SHARED), "sm_90a", &report(40, shared, 0));
    assert!(matches!(&given[..], [much] if much.contains("134376 bytes of shared memory")), "{given:?}");
}
