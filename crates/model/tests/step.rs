//! What a step may be.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use shardwright_model::exec::{BLOCK, Limits, StepBatch, Want};

/// Rows of sequences at positions.
fn batch(rows: &[(u32, u32)]) -> StepBatch {
    StepBatch {
        tokens: vec![1; rows.len()],
        positions: rows.iter().map(|row| row.1).collect(),
        sequences: rows.iter().map(|row| row.0).collect(),
        tables: vec![vec![0], vec![1]],
        wants: vec![Want::Nothing; rows.len()],
        ..StepBatch::default()
    }
}

#[test]
fn rows_of_a_sequence_follow_each_other() {
    let limits = Limits { vocab: 10, rows: 8, blocks: 2, context: BLOCK, width: 4, drafts: false, takes: 0 };
    let check = |rows: &[(u32, u32)], refusal: Option<&str>| {
        let found = batch(rows).check(&limits);
        match refusal {
            None => assert_eq!(found, Ok(()), "{rows:?}"),
            Some(part) => assert!(found.unwrap_err().contains(part), "{rows:?}"),
        }
    };
    check(&[(0, 5), (0, 6), (1, 0)], None);
    // of several, in turn
    check(&[(0, 5), (1, 0), (0, 6), (1, 1)], None);
    check(&[(0, 0), (0, 1), (0, 7)], Some("position 7 of row 2 does not follow"));
    check(&[(0, 5), (0, 4)], Some("position 4 of row 1 does not follow"));
    check(&[(0, 5), (1, 3), (0, 5)], Some("position 5 of row 2 does not follow"));
    check(&[(0, BLOCK as u32)], Some("no place in the cache"));
    check(&[(2, 0)], Some("no place in the cache"));
}
