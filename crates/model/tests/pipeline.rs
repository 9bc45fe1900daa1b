//! A pipeline hands on what stages make, and tells where a row first went wrong.
#![allow(clippy::unwrap_used)]

use shardwright_model::exec::*;
use shardwright_model::pipeline::Pipeline;

const LIMITS: Limits =
    Limits { vocab: 10, rows: 4, blocks: 2, context: 100, width: 2, drafts: false, takes: 0 };

/// A stage that adds one to what comes in, starts from the token, and spoils the rows that it is told to.
struct Adds(Limits, Vec<usize>, &'static str);

impl Executor for Adds {
    fn limits(&self) -> Limits {
        self.0
    }

    fn step_probed(&mut self, batch: &StepBatch, _: Option<&mut dyn Probe>) -> Result<StepOutput, ExecError> {
        batch.check(&self.0).map_err(ExecError)?;
        let tokens = || batch.tokens.iter().flat_map(|t| [*t as f32; 2]).collect();
        let mut hidden = batch.hidden.clone().unwrap_or_else(tokens);
        hidden.iter_mut().for_each(|x| *x += 1.0);
        let row = |i: usize| match batch.wants[i] {
            _ if self.1.contains(&i) => RowOutput::NonFinite { at: self.2.into() },
            Want::Nothing => RowOutput::Nothing,
            _ => RowOutput::Logits(vec![hidden[2 * i]; 10]),
        };
        let rows = (0..batch.rows()).map(row).collect();
        Ok(StepOutput { rows, hidden: if batch.want_hidden { hidden } else { vec![] } })
    }

    fn check(&mut self) -> Result<(), ExecError> {
        if self.2 == "gone" { Err(ExecError("gone".into())) } else { Ok(()) }
    }
}

fn stages(spoiled: [&[usize]; 3], last: &'static str) -> Pipeline {
    let later = Limits { takes: 2, rows: 3, ..LIMITS };
    let stage =
        |limits, rows: &[usize], name| -> Box<dyn Executor> { Box::new(Adds(limits, rows.to_vec(), name)) };
    let [a, b, c] = spoiled;
    Pipeline::new(vec![stage(LIMITS, a, "first"), stage(later, b, "second"), stage(later, c, last)]).unwrap()
}

fn step(want_hidden: bool) -> StepBatch {
    StepBatch {
        tokens: vec![3, 4, 5],
        positions: vec![0, 1, 2],
        sequences: vec![0; 3],
        tables: vec![vec![1]],
        wants: vec![Want::Logits, Want::Nothing, Want::Logits],
        want_hidden,
        hidden: None,
    }
}

#[test]
fn every_stage_does_its_part() {
    let mut pipeline = stages([&[], &[], &[]], "third");
    assert_eq!(pipeline.limits(), Limits { rows: 3, ..LIMITS });
    let out = pipeline.step(&step(true)).unwrap();
    let logits = |x| RowOutput::Logits(vec![x; 10]);
    assert_eq!(out.rows, [logits(6.0), RowOutput::Nothing, logits(8.0)]);
    assert_eq!(out.hidden, [6.0, 6.0, 7.0, 7.0, 8.0, 8.0]);
    assert_eq!(pipeline.step(&step(false)).unwrap().hidden, []);
    pipeline.check().unwrap();
    assert!(stages([&[], &[], &[]], "gone").check().is_err());
}

#[test]
fn the_first_value_gone_wrong_is_told() {
    let out = stages([&[1], &[0, 1], &[0, 1, 2]], "third").step(&step(false)).unwrap();
    let names = ["second", "first", "third"].map(|at| RowOutput::NonFinite { at: at.into() });
    assert_eq!(out.rows, names);
}
