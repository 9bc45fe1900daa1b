//! How descriptions are cut over ranks: every weight in its place once, no value overwritten while it is needed, and
//! the numbers of ranks that work.
#![allow(clippy::unwrap_used)]

mod util;

use proptest::prelude::*;
use shardwright_gguf::QuantType;
use shardwright_model::budget;
use shardwright_model::op::*;
use shardwright_model::plan::{LocalWeight, RankPlan, legal_ranks, plan};
use shardwright_model::{arch, presets};
use std::ops::Range;
use util::{header, planned, plans};

/// How often each index of a weight's cut dimension is held, over all ranks.
fn held(w: &Weight, parts: &[&LocalWeight]) -> Vec<usize> {
    let experts = parts.iter().any(|p| p.copies.len() < w.copies);
    let along = |p: &LocalWeight| -> Range<usize> {
        match w.cut {
            Cut::Copies(_) => p.copies.clone(),
            _ if experts => p.copies.clone(),
            Cut::Rows { .. } => p.rows.start - w.skip..p.rows.end - w.skip,
            Cut::Cols { .. } => p.cols.clone(),
            Cut::Whole => 0..w.rows,
        }
    };
    let n = match w.cut {
        Cut::Copies(_) => w.copies,
        _ if experts => w.copies,
        Cut::Rows { .. } | Cut::Whole => w.rows,
        Cut::Cols { .. } => w.cols,
    };
    let mut counts = vec![0; n];
    parts.iter().flat_map(|p| along(p)).for_each(|i| counts[i] += 1);
    counts
}

fn check_cover(name: &str, d: &Description, plans: &[RankPlan]) {
    for (i, op) in d.ops.iter().enumerate() {
        for (j, w) in op.weights.iter().enumerate() {
            let parts: Vec<&LocalWeight> = plans.iter().filter_map(|p| p.ops[i].weights.get(j)).collect();
            let counts = held(w, &parts);
            let want = match w.cut {
                Cut::Whole => parts.len()..=parts.len(),
                // ranks that share the query heads of one KV head both hold it
                Cut::Rows { group, .. } if group > 1 => 1..=plans.len(),
                _ => 1..=1,
            };
            let bad = counts.iter().position(|n| !want.contains(n));
            assert_eq!(bad, None, "{name} over {}: {} {counts:?}", plans.len(), w.name);
            let whole_bias =
                w.cut == Cut::Whole && j >= op.outputs.len() && matches!(op.kind, Kind::Linear { .. });
            assert!(whole_bias || parts.len() == plans.len(), "{}", w.name);
        }
    }
}

#[test]
fn every_weight_is_held_exactly_once() {
    let mut cut = 0;
    for (name, _) in presets::all() {
        let h = header(name, &[], "q4_k_m");
        for d in [Some(arch::describe(&h.hyper)), arch::draft(&h.hyper)].into_iter().flatten() {
            for ranks in [1, 2, 3, 5, 8, 16] {
                if let Ok(plans) = planned(&h, &d, ranks) {
                    check_cover(name, &d, &plans);
                    cut += 1;
                }
            }
        }
    }
    assert!(cut > 140, "only {cut} plans could be made");
}

/// Runs the ops on slots that hold the number of the value last written: each input must still be there.
fn check_slots(p: &RankPlan) {
    let mut slots = vec![usize::MAX; p.slots.len()];
    for op in &p.ops {
        for v in &op.inputs {
            assert_eq!(slots[v.slot], v.value, "an input was overwritten");
        }
        for v in &op.outputs {
            assert!(op.inputs.iter().all(|i| i.slot != v.slot), "an output lies on an input");
            assert!(v.width <= p.slots[v.slot]);
            slots[v.slot] = v.value;
        }
        let mut own: Vec<usize> = op.outputs.iter().map(|v| v.slot).collect();
        own.sort_unstable();
        own.dedup();
        assert_eq!(own.len(), op.outputs.len(), "two outputs in one slot");
    }
    if let Some(h) = &p.hidden {
        assert_eq!(slots[h.slot], h.value, "the hidden state was overwritten");
    }
}

#[test]
fn values_of_models_are_not_overwritten_while_they_are_needed() {
    for (name, _) in presets::all() {
        let h = header(name, &[], "f32");
        for d in [Some(arch::describe(&h.hyper)), arch::draft(&h.hyper)].into_iter().flatten() {
            for p in planned(&h, &d, 2).unwrap() {
                check_slots(&p);
                // the stream, a branch and its parts: some ten values, however many layers
                assert!(p.slots.len() <= 16, "{name}: {} slots", p.slots.len());
            }
        }
    }
}

/// Any list of ops: each reads up to three earlier values and writes one or two.
fn any_ops() -> impl Strategy<Value = Description> {
    let op =
        (prop::collection::vec(any::<prop::sample::Index>(), 0..4), prop::collection::vec(1usize..50, 1..3));
    (prop::collection::vec(op, 1..60), any::<Option<prop::sample::Index>>()).prop_map(|(ops, hidden)| {
        let mut d = Description::default();
        for (reads, widths) in ops {
            let first = d.values.len();
            let inputs = if first == 0 { vec![] } else { reads.iter().map(|i| i.index(first)).collect() };
            for width in &widths {
                d.values.push(ValueInfo { name: "v".into(), layer: None, width: *width, lay: Lay::Full });
            }
            let outputs = (first..first + widths.len()).collect();
            d.ops.push(Op { kind: Kind::Concat, inputs, weights: vec![], outputs, layer: None });
        }
        d.hidden = hidden.map(|h| h.index(d.values.len()));
        d
    })
}

proptest! {
    #[test]
    fn values_of_any_list_of_ops_are_not_overwritten(d in any_ops()) {
        plan(&d, &|_| None, 1).unwrap().iter().for_each(check_slots);
    }
}

fn legal(h: &presets::Header) -> Vec<usize> {
    legal_ranks(&arch::describe(&h.hyper), &|n| h.tensor(n)).unwrap()
}

/// The numbers of ranks among `of` that work.
fn among(h: &presets::Header, of: &[usize]) -> Vec<usize> {
    let all = legal(h);
    of.iter().copied().filter(|n| all.contains(n)).collect()
}

#[test]
fn q3_cuts_fall_between_blocks_or_are_refused() {
    let cases = [
        // GLM-5 at 8: one block of 256 a rank; at 16, half of the ranks have no part in the experts
        ("glm-5", "ud-q4_k_xl", vec![1, 2, 3, 4, 5, 8, 16]),
        ("glm-4.5", "q4_k_m", vec![1, 2, 3, 4, 5, 8, 16]),
        ("deepseek-v2-lite", "q4_k_m", vec![1, 2, 3, 4, 5, 8, 16]),
        ("glm-4.7-flash", "q4_k_m", vec![1, 2, 3, 4, 5, 8, 16]),
        // 128 heads of 128: two a block
        ("deepseek-v3", "q4_k_m", vec![1, 2, 3, 4, 5, 8, 16]),
        ("smollm2-135m", "q8_0", vec![1, 2, 3, 4, 5, 8]),
    ];
    for (name, recipe, want) in cases {
        let h = header(name, &[], recipe);
        assert_eq!(among(&h, &[1, 2, 3, 4, 5, 8, 16]), want, "{name}");
        for ranks in want {
            check_blocks(name, &plans(&h, ranks).unwrap());
        }
    }
}

fn check_blocks(name: &str, plans: &[RankPlan]) {
    for w in plans.iter().flat_map(|p| &p.ops).flat_map(|o| &o.weights) {
        let whole = |n: usize| n.is_multiple_of(w.quant.block_len());
        assert!(whole(w.cols.start) && whole(w.cols.end), "{name}: {} {:?} {}", w.name, w.cols, w.quant);
    }
}

#[test]
fn q3_a_refusal_names_tensor_row_type_block_and_what_works() {
    let h = header("tiny-deepseek2", &[], "q4_k_m");
    let text = plans(&h, 9).unwrap_err().to_string();
    let want = "9 ranks do not work: the 8 heads of layer 0 do not go around, dealt 4 at a time, since \
                `blk.0.attn_output.weight` has rows of 512 in Q4_K blocks of 256, 64 columns each; legal for this \
                file: 1, 2, 3, 4, 5, 6, 7, 8";
    assert_eq!(text, want);
    let h = header("glm-4.7-flash", &[], "q4_k_m");
    let text = plans(&h, 40).unwrap_err().to_string();
    assert!(
        text.contains("the 20 heads of layer 0") && text.contains("rows of 5120 in Q4_K blocks of 256"),
        "{text}"
    );
    assert!(plans(&h, 0).unwrap_err().to_string().contains("1 to 64"));
    assert!(plans(&h, 1000).unwrap_err().to_string().contains("1 to 64"));
}

#[test]
fn q3_heads_glued_by_a_block_leave_a_rank_idle() {
    let h = header("tiny-deepseek2", &[], "q4_k_m");
    let columns = |p: &RankPlan| {
        let all = p.ops.iter().flat_map(|o| &o.weights);
        all.filter(|w| w.name == "blk.0.attn_output.weight").map(|w| w.cols.clone()).collect::<Vec<_>>()
    };
    let cut: Vec<_> = plans(&h, 3).unwrap().iter().flat_map(columns).collect();
    assert_eq!(cut, [0..256, 256..512, 0..0]);
}

#[test]
fn q3_experts_are_dealt_by_features_or_whole_whichever_reads_less() {
    let shares = |h: &presets::Header, ranks: usize| {
        let plans = plans(h, ranks).unwrap();
        let experts = |p: &RankPlan| {
            let op = p.ops.iter().find(|o| matches!(o.kind, Kind::Experts { .. })).unwrap();
            (op.weights[2].copies.len(), op.weights[2].cols.len())
        };
        plans.iter().map(experts).collect::<Vec<_>>()
    };
    let glm5 = header("glm-5", &[], "ud-q4_k_xl");
    assert_eq!(shares(&glm5, 8), vec![(256, 256); 8]);
    assert_eq!(shares(&glm5, 2), vec![(256, 1024); 2]);
    // six blocks over four ranks: two, two, one, one
    let glm45 = header("glm-4.5", &[], "ud-q4_k_xl");
    assert_eq!(shares(&glm45, 4), [(160, 512), (160, 512), (160, 256), (160, 256)]);
    // a single block cannot be dealt: whole experts are
    let mut one =
        header("tiny-qwen3moe", &[("attention.head_count_kv", "8"), ("expert_count", "64")], "q8_0");
    one.retype("_exps.", QuantType::Q4_K).unwrap();
    assert_eq!(shares(&one, 4), vec![(16, 256); 4]);
    let d = arch::describe(&one.hyper);
    let balance = budget::balance(&d, &planned(&one, &d, 4).unwrap());
    assert_eq!((balance.expert_parallel, balance.idle.len()), (vec![0, 1, 2], 0));
}

#[test]
fn q2_unusable_types_are_refused_together_before_any_weight_is_read() {
    let mut h = header("tiny-llama", &[], "q8_0");
    h.retype("ffn_down", QuantType::Q8_K).unwrap();
    h.retype("attn_q.", QuantType::I32).unwrap();
    let text = plans(&h, 1).unwrap_err().to_string();
    let want = "cannot use tensors of these types: I32 (3 tensors, such as `blk.0.attn_q.weight`), \
                Q8_K (3 tensors, such as `blk.0.ffn_down.weight`)";
    assert_eq!(text, want);
    // a bias is cut between any two of its elements
    let mut h = header("tiny-qwen2", &[], "q8_0");
    h.retype("attn_k.bias", QuantType::Q8_0).unwrap();
    let text = plans(&h, 2).unwrap_err().to_string();
    assert!(text.contains("Q8_0 (3 tensors, such as `blk.0.attn_k.bias`)"), "{text}");
    // mixed types in one layer are fine
    let mut h = header("tiny-qwen3", &[], "q8_0");
    for (part, quant) in
        [("attn_k.", QuantType::Q4_0), ("attn_v.", QuantType::F16), ("ffn_up", QuantType::Q4_1)]
    {
        h.retype(part, quant).unwrap();
    }
    assert_eq!(plans(&h, 2).unwrap().len(), 2);
}

#[test]
fn shapes_are_those_that_the_numbers_demand() {
    let h = header("tiny-llama", &[], "f32");
    let other = header("tiny-llama", &[("feed_forward_length", "768")], "f32");
    let d = arch::describe(&other.hyper);
    let text = planned(&h, &d, 1).unwrap_err().to_string();
    assert!(
        text.contains("`blk.0.ffn_gate.weight` has shape [256, 512]") && text.contains("[256, 768]"),
        "{text}"
    );
    let longer = header("tiny-llama", &[("block_count", "4")], "f32");
    let text = planned(&h, &arch::describe(&longer.hyper), 1).unwrap_err().to_string();
    assert!(text.contains("`blk.3.attn_norm.weight` is missing"), "{text}");
}

#[test]
fn the_bias_of_a_summand_is_added_by_one_rank() {
    let h = header("tiny-llama", &[], "f32");
    let mut hyper = h.hyper.clone();
    let shardwright_model::hyper::Attention::Gqa(g) = &mut hyper.attention else { panic!("grouped queries") };
    g.bias[3] = shardwright_model::build::Bias::Own;
    let d = arch::describe(&hyper);
    let bias = shardwright_gguf::TensorInfo {
        name: String::new(),
        quant: QuantType::F32,
        ne: [256, 1, 1, 1],
        file: 0,
        offset: 0,
        bytes: 1024,
    };
    let plans = plan(&d, &|n| if n.ends_with(".bias") { Some(&bias) } else { h.tensor(n) }, 2).unwrap();
    let of = |p: &RankPlan| {
        let op =
            p.ops.iter().find(|o| o.weights.first().is_some_and(|w| w.name.contains("attn_output"))).unwrap();
        (op.weights.len(), op.kind == Kind::Linear { biased: vec![true] })
    };
    assert_eq!(plans.iter().map(of).collect::<Vec<_>>(), [(2, true), (1, false)]);
}
