//! The CPU backend against reference values that other programs computed.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use shardwright_cpu::{Activations, CpuExecutor};
use shardwright_model::exec::{Executor, Want};
use shardwright_model::hyper::Options;
use std::path::Path;

/// Logits within the limit, and the likeliest token everywhere the same.
fn check_logits(name: &str, gold: &Gold, array: &str, exec: &mut CpuExecutor, what: &str) {
    let limit = limit(name);
    for p in 0..gold.prompts() {
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

#[test]
fn logits_are_those_of_the_reference() {
    for (name, gold) in goldens() {
        for file in files(&name) {
            check_logits(&name, &gold, "logits", &mut open(&file, PLAIN), &file.display().to_string());
        }
    }
}

#[test]
fn dense_attention_is_that_of_the_reference() {
    let dense = Setup { options: Options { dense_attention: true, ..Options::default() }, ..PLAIN };
    for (name, gold) in goldens().into_iter().filter(|g| g.1.has("p0_dense_logits")) {
        for file in files(&name) {
            check_logits(&name, &gold, "dense_logits", &mut open(&file, dense), &file.display().to_string());
        }
    }
}

/// Every position's log-probability of the token that follows, and the 64 greedy tokens, one by one with a cache.
#[test]
fn every_position_and_all_greedy_tokens_agree() {
    for (name, gold) in goldens() {
        let mut exec = open(&files(&name)[0], PLAIN);
        for p in 0..gold.prompts() {
            let ids = gold.ids(p);
            for (t, l) in forward(&mut exec, &ids).iter().enumerate().take(ids.len() - 1) {
                let all = l.iter().map(|v| f64::from(*v).exp()).sum::<f64>().ln();
                let (got, want) =
                    (f64::from(l[ids[t + 1] as usize]) - all, gold.all(&format!("p{p}_next_logprob"))[t]);
                assert!(
                    (got - want).abs() <= 2.0 * limit(&name),
                    "{name} p{p} position {t}: {got}, not {want}"
                );
            }
            let prompt = ids.len() - gold.all(&format!("p{p}_greedy_margin")).len();
            assert_eq!(greedy(&mut exec, &ids[..prompt], ids.len() - prompt), ids[prompt..], "{name} p{p}");
        }
    }
}

/// Two engines that share no code differ by up to 2e-5 of a layer's root mean square; this is five times as much.
const NEAR: f64 = 1e-4;

fn rms(v: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = v.len() as f64;
    (v.map(|x| x * x).sum::<f64>() / n).sqrt()
}

fn check_layers(name: &str, gold: &Gold, p: usize, taps: &Taps) -> f64 {
    let mut worst = 0f64;
    let mut compare = |what: String, got: &[f32], want: &[f64]| {
        let off = apart(got, want) / rms(want.iter().copied());
        worst = worst.max(off);
        assert!(off <= NEAR, "{name} p{p} {what}: {off} of its root mean square");
    };
    let ffn_norm = if taps.0.contains_key("blk.0.ffn_norm") { "ffn_norm" } else { "post_attention_norm" };
    let layers = gold.shape(&format!("p{p}_l_out"))[0];
    for (h, at) in gold.ints(&format!("p{p}_hidden_pos")).into_iter().enumerate() {
        for l in 0..layers {
            for (array, ours) in [
                ("attn_norm", "attn_norm"),
                ("attn_out", "attn_out"),
                ("ffn_norm", ffn_norm),
                ("ffn_out", "ffn_out"),
                ("l_out", "l_out"),
            ] {
                let path = format!("blk.{l}.{ours}");
                compare(
                    format!("{path} at {at}"),
                    taps.row(&path, at),
                    gold.at(&format!("p{p}_{array}"), &[l, h]),
                );
            }
        }
        compare(
            format!("result_norm at {at}"),
            taps.row("result_norm", at),
            gold.at(&format!("p{p}_result_norm"), &[h]),
        );
    }
    worst
}

/// Root mean square and a checksum with cosines at every position.
fn check_sums(name: &str, gold: &Gold, p: usize, taps: &Taps) -> f64 {
    let mut worst = 0f64;
    let shape = gold.shape(&format!("p{p}_l_out_rms")).to_vec();
    for array in ["attn_out", "ffn_out", "l_out"] {
        for (l, t) in (0..shape[0]).flat_map(|l| (0..shape[1]).map(move |t| (l, t))) {
            let row = taps.row(&format!("blk.{l}.{array}"), t);
            let proj: f64 = row.iter().enumerate().map(|(i, x)| f64::from(*x) * (i as f64).cos()).sum();
            let want = |kind| gold.at(&format!("p{p}_{array}_{kind}"), &[l, t])[0];
            let off = (rms(row.iter().map(|x| f64::from(*x))) - want("rms")).abs() / want("rms");
            let turned = (proj - want("proj")).abs() / (want("rms") * (row.len() as f64).sqrt());
            worst = worst.max(off).max(turned);
            assert!(off.max(turned) <= NEAR, "{name} p{p} blk.{l}.{array} at {t}: {off}, {turned}");
        }
    }
    worst
}

/// Which experts every position chose, and their weights at some.
fn check_router(name: &str, gold: &Gold, p: usize, taps: &Taps) {
    let shape = gold.shape(&format!("p{p}_router_ids")).to_vec();
    let (positions, k) = (shape[1], shape[2]);
    let hidden = gold.ints(&format!("p{p}_hidden_pos"));
    for (m, l) in gold.ints(&format!("p{p}_router_layers")).into_iter().enumerate() {
        for t in 0..positions {
            let (ids, weights) = taps.row(&format!("blk.{l}.ffn_moe_topk"), t).split_at(k);
            let by_weight = gold.at(&format!("p{p}_router_ids"), &[m, t]);
            let mut want: Vec<f32> = by_weight.iter().map(|e| *e as f32).collect();
            want.sort_by(f32::total_cmp);
            assert_eq!(ids, want, "{name} p{p} layer {l} position {t}");
            let Some(h) = hidden.iter().position(|at| *at == t) else { continue };
            let golden = gold.at(&format!("p{p}_router_weights"), &[m, h]);
            for (e, w) in by_weight.iter().zip(golden) {
                let got = weights[ids.iter().position(|i| f64::from(*i) == *e).unwrap()];
                assert!((f64::from(got) - w).abs() <= NEAR * w, "{name} p{p} layer {l} position {t}");
            }
        }
    }
}

/// The exact set of positions that each indexer selects.
fn check_index(name: &str, gold: &Gold, p: usize, taps: &Taps) {
    for (f, l) in gold.ints(&format!("p{p}_index_layers")).into_iter().enumerate() {
        for (n, q) in gold.ints(&format!("p{p}_index_pos")).into_iter().enumerate() {
            let want: Vec<f64> = gold
                .at(&format!("p{p}_index_sel"), &[f, n])
                .iter()
                .copied()
                .filter(|t| *t <= q as f64)
                .collect();
            let got: Vec<f64> = taps
                .row(&format!("blk.{l}.index_sel"), q)
                .iter()
                .map(|t| f64::from(*t))
                .filter(|t| *t >= 0.0)
                .collect();
            assert_eq!(got, want, "{name} p{p} layer {l} position {q}");
        }
    }
}

#[test]
fn layers_routers_and_indexers_agree() {
    for (name, gold) in goldens() {
        let mut exec = open(&files(&name)[0], PLAIN);
        let (mut routed, mut indexed) = (0, 0);
        for p in 0..gold.prompts() {
            let mut taps = Taps::default();
            let ids = gold.ids(p);
            exec.step_probed(&step_of(&[(&ids, 0, &TABLE)], Want::Logits), Some(&mut taps)).unwrap();
            let layers = check_layers(&name, &gold, p, &taps);
            let sums = check_sums(&name, &gold, p, &taps);
            println!("{name} p{p}: values {layers:.1e}, sums {sums:.1e} of {NEAR:.1e}");
            if gold.has(&format!("p{p}_router_ids")) {
                check_router(&name, &gold, p, &taps);
                routed += 1;
            }
            if gold.has(&format!("p{p}_index_sel")) {
                check_index(&name, &gold, p, &taps);
                indexed += 1;
            }
        }
        let moe = ["glm", "deepseek"].iter().any(|a| name.starts_with(a));
        assert_eq!((routed > 0, indexed > 0), (moe, name.starts_with("glm-dsa")), "{name}: nothing compared");
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

/// 8-bit activations are judged by statistics over all rows: a flipped choice moves single rows by any amount.
fn check_a8(name: &str, gold: &Gold, activations: Activations) {
    let mut exec = open(&files(name)[0], Setup { activations, ..PLAIN });
    let (mut worst, mut squares, mut kl, mut same) = (vec![], vec![], vec![], vec![]);
    for p in 0..gold.prompts() {
        let got = forward(&mut exec, &gold.ids(p));
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
    let limit = |key: &str| tolerance(name, "a8", key);
    let stats = [
        ("p50_row_max", quantile(&worst, 0.5)),
        ("p90_row_max", quantile(&worst, 0.9)),
        ("rms", mean(&squares).sqrt()),
        ("kl_mean", mean(&kl)),
    ];
    println!("{name} {activations:?}: {stats:.3?}, best token {:.3}", mean(&same));
    for (key, got) in stats {
        assert!(got <= limit(key), "{name} {key}: {got} > {}", limit(key));
    }
    assert!(mean(&same) >= limit("top1_agree"), "{name}");
    let rounds = name.ends_with("-kq") || activations == Activations::Q8Everywhere;
    assert!(!rounds || stats[0].1 > 0.01, "{name}: the activations were not rounded");
}

#[test]
fn activations_of_8_bits_are_as_good_as_the_class_allows() {
    for (name, gold) in goldens() {
        // without quantized weights nothing would be rounded
        let forced = name.ends_with("-f32");
        check_a8(&name, &gold, if forced { Activations::Q8Everywhere } else { Activations::Q8 });
    }
}

/// The next-token layer: row t takes token t + 1 and the trunk's hidden state of token t.
fn check_draft(name: &str, file: &Path, ranks: usize) {
    let gold = Gold::open(&format!("golden/{name}-mtp.npz")).unwrap();
    let ids: Vec<u32> = gold.ints("ids").into_iter().map(|i| i as u32).collect();
    let mut exec = open(file, over(ranks));
    let mut trunk = step_of(&[(&ids, 0, &TABLE)], Want::Nothing);
    trunk.want_hidden = true;
    let hidden = exec.step(&trunk).unwrap().hidden;
    let width = exec.limits().width;
    let mut draft = step_of(&[(&ids[1..], 0, &TABLE)], Want::Logits);
    draft.draft_hidden = Some(hidden[..(ids.len() - 1) * width].to_vec());
    let got = logits(&exec.step(&draft).unwrap());
    for (n, at) in gold.ints("pos").into_iter().enumerate() {
        let off = apart(&got[at], gold.at("logits", &[n]));
        assert!(off <= limit(name), "{name} draft position {at}: {off}");
    }
    let best: Vec<usize> = got.iter().map(|l| argmax(l) as usize).collect();
    assert_eq!(best, gold.ints("argmax"), "{name}");
}

#[test]
fn drafts_are_those_of_the_reference() {
    let mut checked = 0;
    for (name, _) in goldens() {
        if data().join(format!("golden/{name}-mtp.npz")).exists() {
            files(&name).iter().for_each(|file| check_draft(&name, file, 1));
            check_draft(&name, &files(&name)[0], 2);
            checked += 1;
        }
    }
    assert!(checked >= 2, "next-token goldens are missing");
}
