//! What all stages must have in common: program, model, options, cut.

use crate::wire::{BackendArgs, Opened};
use ring::digest::{Context, SHA256};
use shardwright_gguf::Reader;
use shardwright_model::op::Description;

/// Names and values, in the order in which they are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity(pub(super) Vec<(String, String)>);

/// Bytes that are looked at of each tensor: enough to tell two trainings of one model apart.
const SAMPLE: usize = 4096;

impl Identity {
    /// Of a model cut into `stages`, run as `args` say.
    pub(super) fn of(opened: &Opened, stages: &[Description], args: &BackendArgs) -> Identity {
        let reader = &opened.reader;
        let pairs = [
            ("program", env!("SHARDWRIGHT_VERSION").to_owned()),
            ("--pipeline-parallel-size", stages.len().to_string()),
            ("--tp", args.tp().to_string()),
            ("--allreduce-type", format!("{:?}", args.ranks(false).wire)),
            ("options", format!("{:?}", opened.hyper.options)),
            ("header of the model", digest(|sum| header(reader, sum))),
            ("weights of the model", digest(|sum| samples(reader, sum))),
            ("cut of the model", digest(|sum| sum.update(format!("{stages:?}").as_bytes()))),
        ];
        Identity(pairs.map(|(name, value)| (name.to_owned(), value)).into())
    }

    /// # Errors
    /// The first thing that is different.
    pub(super) fn check(&self, other: &Identity) -> Result<(), String> {
        for (name, value) in &self.0 {
            match other.0.iter().find(|(n, _)| n == name) {
                Some((_, theirs)) if theirs == value => {}
                Some((_, theirs)) => return Err(format!("{name}: `{theirs}` there, `{value}` here")),
                None => return Err(format!("{name}: nothing there, `{value}` here")),
            }
        }
        Ok(())
    }
}

fn digest(fill: impl FnOnce(&mut Context)) -> String {
    let mut sum = Context::new(&SHA256);
    fill(&mut sum);
    sum.finish().as_ref()[..8].iter().map(|b| format!("{b:02x}")).collect()
}

/// Keys, values and tensors, however they are ordered and split over files.
fn header(reader: &Reader, sum: &mut Context) {
    let mut lines: Vec<String> =
        reader.meta().iter().map(|(key, value)| format!("{key}={value:?}")).collect();
    lines.retain(|line| !line.starts_with("split."));
    lines.extend(reader.tensors().iter().map(|t| format!("{} {:?} {}", t.name, t.ne, t.quant.name())));
    lines.sort_unstable();
    lines.iter().for_each(|line| {
        sum.update(line.as_bytes());
        sum.update(b"\n");
    });
}

fn samples(reader: &Reader, sum: &mut Context) {
    let mut tensors: Vec<_> = reader.tensors().iter().collect();
    tensors.sort_unstable_by_key(|t| &t.name);
    for tensor in tensors {
        let bytes = reader.bytes(tensor);
        sum.update(&bytes[..bytes.len().min(SAMPLE)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_named() {
        let of = |pairs: &[(&str, &str)]| {
            Identity(pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect())
        };
        let mine = of(&[("program", "1"), ("--tp", "2")]);
        let check = |other: &Identity, want: &str| assert_eq!(mine.check(other).unwrap_err(), want);
        assert_eq!(mine.check(&mine), Ok(()));
        check(&of(&[("program", "2"), ("--tp", "4")]), "program: `2` there, `1` here");
        check(&of(&[("--tp", "4"), ("program", "1")]), "--tp: `4` there, `2` here");
        check(&of(&[("program", "1")]), "--tp: nothing there, `2` here");
    }
}
