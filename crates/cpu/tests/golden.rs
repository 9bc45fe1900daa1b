//! The CPU backend against reference values that other programs computed.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use shardwright_cpu::Activations;
use shardwright_model::exec::{Executor, Want};
use shardwright_model::hyper::Options;

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

#[test]
fn activations_of_8_bits_are_as_good_as_the_class_allows() {
    for (name, gold) in goldens() {
        // without quantized weights nothing would be rounded
        let forced = name.ends_with("-f32");
        let activations = if forced { Activations::Q8Everywhere } else { Activations::Q8 };
        let mut exec = open(&files(&name)[0], Setup { activations, ..PLAIN });
        check_a8(&name, &gold, &mut exec, gold.prompts(), forced || name.ends_with("-kq"));
    }
}

#[test]
fn drafts_are_those_of_the_reference() {
    let mut checked = 0;
    for (name, _) in goldens() {
        if data().join(format!("golden/{name}-mtp.npz")).exists() {
            files(&name).iter().for_each(|file| check_draft(&name, &mut open(file, PLAIN)));
            check_draft(&name, &mut open(&files(&name)[0], over(2)));
            checked += 1;
        }
    }
    assert!(checked >= 2, "next-token goldens are missing");
}
