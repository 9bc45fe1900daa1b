//! Plans that do not belong to their description are refused, with what is wrong in them.
#![allow(clippy::unwrap_used)]

mod util;

use shardwright_model::op::*;
use shardwright_model::plan::{RankPlan, audit};
use shardwright_model::{arch, presets};
use util::{header, planned};

/// What is right stays so: every preset over all numbers of ranks that can be had.
#[test]
fn plans_as_they_are_made_pass() {
    let mut passed = 0;
    for (name, _) in presets::all() {
        for recipe in ["q4_k_m", "ud-q4_k_xl"] {
            let h = header(name, &[], recipe);
            for d in [Some(arch::describe(&h.hyper)), arch::draft(&h.hyper)].into_iter().flatten() {
                for ranks in [1, 2, 3, 5, 6, 8, 16] {
                    if let Ok(plans) = planned(&h, &d, ranks) {
                        audit(&d, &plans).unwrap_or_else(|e| panic!("{name} over {ranks}: {e}"));
                        passed += 1;
                    }
                }
            }
        }
    }
    assert!(passed > 280, "only {passed} plans could be made");
}

/// The first op whose first weight has this name.
fn op(plans: &[RankPlan], weight: &str) -> usize {
    plans[0].ops.iter().position(|op| op.weights.iter().any(|w| w.name == weight)).unwrap()
}

fn check(fault: &str, plant: impl Fn(&mut Vec<RankPlan>), expected: &[&str]) {
    let h = header("glm-5", &[("block_count", "6")], "q4_k_m");
    let d = arch::describe(&h.hyper);
    let mut plans = planned(&h, &d, 4).unwrap();
    audit(&d, &plans).unwrap();
    plant(&mut plans);
    let found = audit(&d, &plans).expect_err(fault);
    assert!(expected.iter().all(|part| found.contains(part)) && !found.contains('\n'), "{fault}: {found}");
}

#[test]
fn fused_slots_that_changed_places_are_named() {
    let (q, kv) = ("blk.0.attn_q_a.weight", "blk.0.attn_kv_a_mqa.weight");
    let swapped = |plans: &mut Vec<RankPlan>| {
        let at = op(plans, q);
        plans[2].ops[at].weights.swap(0, 1);
    };
    check("q_a and kv_a exchanged", swapped, &["rank 2 of 4", q, kv]);
}

#[test]
fn rows_of_another_rank_are_named() {
    let (gate, up) = ("blk.0.ffn_gate.weight", "blk.0.ffn_up.weight");
    let of_rank_0 = |which: usize| {
        move |plans: &mut Vec<RankPlan>| {
            let at = op(plans, gate);
            plans[1].ops[at].weights[which].rows = plans[0].ops[at].weights[which].rows.clone();
        }
    };
    check("the up rows of rank 0 on rank 1", of_rank_0(1), &["rank 1 of 4", up]);
    check("the gate rows of rank 0 on rank 1", of_rank_0(0), &["ffn of layer 0 are not dealt once each"]);
    let both = |plans: &mut Vec<RankPlan>| {
        let at = op(plans, gate);
        for j in [0, 1] {
            let [a, b] = [0, 1].map(|r| plans[r].ops[at].weights[j].rows.clone());
            (plans[0].ops[at].weights[j].rows, plans[1].ops[at].weights[j].rows) = (b, a);
        }
    };
    check("gate and up of ranks 0 and 1 exchanged", both, &["ffn of layer 0 are not dealt once each"]);
    let down = |plans: &mut Vec<RankPlan>| {
        let at = op(plans, "blk.0.ffn_down.weight");
        plans[3].ops[at].weights[0].cols = plans[2].ops[at].weights[0].cols.clone();
    };
    check("the down columns of rank 2 on rank 3", down, &["rank 3 of 4", "blk.0.ffn_down.weight"]);
    let experts = |plans: &mut Vec<RankPlan>| {
        let at = op(plans, "blk.3.ffn_up_exps.weight");
        plans[1].ops[at].weights[1].rows = plans[0].ops[at].weights[1].rows.clone();
    };
    check("an expert's up rows of rank 0 on rank 1", experts, &["rank 1 of 4", "blk.3.ffn_up_exps.weight"]);
    check("ranks exchanged", |plans| plans.swap(0, 1), &["not dealt once each"]);
}

#[test]
fn values_read_from_elsewhere_are_named() {
    let sum = |plans: &[RankPlan]| plans[0].ops.iter().position(|op| op.kind == Kind::Sum).unwrap();
    let skipped = |plans: &mut Vec<RankPlan>| {
        let at = sum(plans);
        let elsewhere = plans[1].ops[at].inputs[0].slot;
        plans[1].ops[at].outputs[0].slot = elsewhere;
    };
    check("a sum that goes elsewhere", skipped, &["rank 1 of 4", "reads `blk.0.attn_out` from where"]);
    let other = |plans: &mut Vec<RankPlan>| {
        let at = sum(plans);
        plans[1].ops[at].kind = Kind::Add;
    };
    check("no sum", other, &["rank 1 of 4", "`blk.0.attn_out` is another op"]);
}
