//! What stages say to each other, as bytes and back. Little-endian; every list is preceded by its length, which is never
//! believed beyond the bytes that are there.

use super::identity::Identity;
use shardwright_cpu::Activations;
use shardwright_model::exec::{BLOCK, CANDIDATES, Limits, RowOutput, StepBatch, StepOutput, Want};

/// Both ends must write this number. It changes with every change of what is below.
const PROTOCOL: u32 = 1;

/// Bytes of a message before any step.
pub(super) const SMALL: usize = 1 << 16;

/// What is said.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Message {
    /// A later stage's first word: which one it is, and of what.
    Hello { stage: u32, identity: Identity },
    /// Stage 0's answer: what to make of it.
    Start(Sizes),
    /// The stage is loaded.
    Ready(Limits),
    /// Run this.
    Step(StepBatch),
    /// What came of it.
    Output(StepOutput),
    /// Here still.
    Beat,
    /// All is done.
    Bye,
    /// It cannot go on; why.
    Failed(String),
}

/// What stage 0 decides for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) rows: usize,
    pub(super) blocks: usize,
    pub(super) context: usize,
    pub(super) activations: Activations,
}

/// Most bytes of a step for a stage that takes rows of `takes` elements.
pub(super) fn step_bytes(limits: &Limits) -> usize {
    let tables = limits.context.div_ceil(BLOCK).saturating_add(1).saturating_mul(4);
    let row = limits.takes.saturating_mul(4).saturating_add(tables).saturating_add(16);
    limits.rows.saturating_mul(row).saturating_add(SMALL)
}

/// Most bytes of an answer.
pub(super) fn output_bytes(limits: &Limits) -> usize {
    let answer = limits.vocab.saturating_mul(4).max(CANDIDATES * 8 + 16);
    let row = limits.width.saturating_mul(4).saturating_add(answer).saturating_add(SMALL);
    limits.rows.saturating_mul(row).saturating_add(SMALL)
}

impl Message {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut out = Bytes(vec![]);
        match self {
            Message::Hello { stage, identity } => {
                out.tag(0).number(PROTOCOL).number(*stage).number(identity.0.len() as u32);
                identity.0.iter().for_each(|(name, value)| {
                    out.text(name).text(value);
                });
            }
            Message::Start(sizes) => {
                let kind = ACTIVATIONS.iter().position(|a| *a == sizes.activations);
                out.tag(1).sizes([sizes.rows, sizes.blocks, sizes.context]).tag(kind.unwrap_or(0) as u8);
            }
            Message::Ready(l) => {
                out.tag(2).sizes([l.vocab, l.rows, l.blocks, l.context, l.width, l.takes]);
            }
            Message::Step(batch) => out.tag(3).batch(batch),
            Message::Output(output) => {
                out.tag(4).number(output.rows.len() as u32);
                output.rows.iter().for_each(|row| out.row(row));
                out.floats(&output.hidden);
            }
            Message::Beat => {
                out.tag(5);
            }
            Message::Bye => {
                out.tag(6);
            }
            Message::Failed(why) => {
                // a reason is a line, and a frame is small before the first step
                let cut = why.floor_char_boundary(1000);
                out.tag(7).text(&why[..cut]);
            }
        }
        out.0
    }

    /// # Errors
    /// What is wrong with the bytes.
    pub(super) fn read(bytes: &[u8]) -> Result<Message, String> {
        let mut from = Reading(bytes);
        let message = match from.tag()? {
            0 => from.hello()?,
            1 => {
                let [rows, blocks, context] = from.sizes()?;
                let activations = *ACTIVATIONS.get(usize::from(from.tag()?)).ok_or("unknown activations")?;
                Message::Start(Sizes { rows, blocks, context, activations })
            }
            2 => {
                let [vocab, rows, blocks, context, width, takes] = from.sizes()?;
                Message::Ready(Limits { vocab, rows, blocks, context, width, drafts: false, takes })
            }
            3 => Message::Step(from.batch()?),
            4 => {
                let count = from.number()?;
                let rows = (0..count).map(|_| from.row()).collect::<Result<_, _>>()?;
                Message::Output(StepOutput { rows, hidden: from.floats()? })
            }
            5 => Message::Beat,
            6 => Message::Bye,
            7 => Message::Failed(from.text()?),
            other => return Err(format!("a message of kind {other}")),
        };
        match from.0.len() {
            0 => Ok(message),
            more => Err(format!("{more} bytes too many")),
        }
    }
}

const ACTIVATIONS: [Activations; 3] = [Activations::F32, Activations::Q8, Activations::Q8Everywhere];
const WANTS: [Want; 3] = [Want::Nothing, Want::Candidates, Want::Logits];

/// A message on its way out.
struct Bytes(Vec<u8>);

impl Bytes {
    fn tag(&mut self, tag: u8) -> &mut Bytes {
        self.0.push(tag);
        self
    }

    fn number(&mut self, n: u32) -> &mut Bytes {
        self.0.extend(n.to_le_bytes());
        self
    }

    fn sizes<const N: usize>(&mut self, sizes: [usize; N]) -> &mut Bytes {
        sizes.into_iter().for_each(|n| self.0.extend((n as u64).to_le_bytes()));
        self
    }

    fn text(&mut self, text: &str) -> &mut Bytes {
        self.number(text.len() as u32).0.extend(text.as_bytes());
        self
    }

    fn numbers(&mut self, all: &[u32]) -> &mut Bytes {
        self.number(all.len() as u32).0.extend(all.iter().flat_map(|n| n.to_le_bytes()));
        self
    }

    fn floats(&mut self, all: &[f32]) {
        self.number(all.len() as u32).0.extend(all.iter().flat_map(|x| x.to_le_bytes()));
    }

    fn batch(&mut self, batch: &StepBatch) {
        let StepBatch { tokens, positions, sequences, tables, wants, want_hidden, hidden } = batch;
        self.numbers(tokens).numbers(positions).numbers(sequences).number(tables.len() as u32);
        tables.iter().for_each(|table| {
            self.numbers(table);
        });
        self.number(wants.len() as u32);
        wants.iter().for_each(|want| {
            self.tag(WANTS.iter().position(|w| w == want).unwrap_or(0) as u8);
        });
        self.tag(u8::from(*want_hidden)).tag(u8::from(hidden.is_some()));
        hidden.iter().for_each(|rows| self.floats(rows));
    }

    fn row(&mut self, row: &RowOutput) {
        match row {
            RowOutput::Nothing => {
                self.tag(0);
            }
            RowOutput::Candidates { ids, logits, log_sum_exp } => {
                self.tag(1).numbers(ids).floats(logits);
                self.0.extend(log_sum_exp.to_le_bytes());
            }
            RowOutput::Logits(logits) => self.tag(2).floats(logits),
            RowOutput::NonFinite { at } => {
                self.tag(3).text(at);
            }
        }
    }
}

/// A message on its way in.
struct Reading<'a>(&'a [u8]);

impl<'a> Reading<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or("a message cut short")?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        self.take(N)?.try_into().map_err(|_| "a message cut short".into())
    }

    fn tag(&mut self) -> Result<u8, String> {
        Ok(self.array::<1>()?[0])
    }

    fn yes(&mut self) -> Result<bool, String> {
        match self.tag()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(format!("{other} is neither yes nor no")),
        }
    }

    fn number(&mut self) -> Result<u32, String> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn float(&mut self) -> Result<f32, String> {
        Ok(f32::from_le_bytes(self.array()?))
    }

    fn sizes<const N: usize>(&mut self) -> Result<[usize; N], String> {
        let mut sizes = [0; N];
        for size in &mut sizes {
            *size = usize::try_from(u64::from_le_bytes(self.array()?)).map_err(|e| e.to_string())?;
        }
        Ok(sizes)
    }

    fn text(&mut self) -> Result<String, String> {
        let len = self.number()? as usize;
        String::from_utf8(self.take(len)?.to_vec()).map_err(|e| e.to_string())
    }

    /// A list of elements of four bytes.
    fn list<T>(&mut self, of: fn([u8; 4]) -> T) -> Result<Vec<T>, String> {
        let len = (self.number()? as usize).checked_mul(4).ok_or("a list too long")?;
        let (all, _) = self.take(len)?.as_chunks::<4>();
        Ok(all.iter().map(|bytes| of(*bytes)).collect())
    }

    fn numbers(&mut self) -> Result<Vec<u32>, String> {
        self.list(u32::from_le_bytes)
    }

    fn floats(&mut self) -> Result<Vec<f32>, String> {
        self.list(f32::from_le_bytes)
    }

    fn hello(&mut self) -> Result<Message, String> {
        let protocol = self.number()?;
        if protocol != PROTOCOL {
            return Err(format!("it speaks version {protocol} of the protocol, and this one {PROTOCOL}"));
        }
        let (stage, count) = (self.number()?, self.number()?);
        let pairs = (0..count).map(|_| Ok((self.text()?, self.text()?)));
        Ok(Message::Hello { stage, identity: Identity(pairs.collect::<Result<_, String>>()?) })
    }

    fn batch(&mut self) -> Result<StepBatch, String> {
        let (tokens, positions, sequences) = (self.numbers()?, self.numbers()?, self.numbers()?);
        let tables = (0..self.number()?).map(|_| self.numbers()).collect::<Result<_, _>>()?;
        let count = self.number()? as usize;
        let want = |tag: &u8| WANTS.get(usize::from(*tag)).copied().ok_or("an unknown wish");
        let wants = self.take(count)?.iter().map(want).collect::<Result<_, _>>()?;
        let want_hidden = self.yes()?;
        let hidden = if self.yes()? { Some(self.floats()?) } else { None };
        Ok(StepBatch { tokens, positions, sequences, tables, wants, want_hidden, hidden })
    }

    fn row(&mut self) -> Result<RowOutput, String> {
        Ok(match self.tag()? {
            0 => RowOutput::Nothing,
            1 => {
                let (ids, logits) = (self.numbers()?, self.floats()?);
                RowOutput::Candidates { ids, logits, log_sum_exp: self.float()? }
            }
            2 => RowOutput::Logits(self.floats()?),
            3 => RowOutput::NonFinite { at: self.text()? },
            other => return Err(format!("a row of kind {other}")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Message> {
        let identity = Identity(vec![("program".into(), "1.0".into()), ("ä".into(), String::new())]);
        let batch = StepBatch {
            tokens: vec![1, 2, u32::MAX],
            positions: vec![0, 1, 7],
            sequences: vec![0, 0, 1],
            tables: vec![vec![4, 5], vec![]],
            wants: WANTS.to_vec(),
            want_hidden: true,
            hidden: Some(vec![1.5, f32::MIN_POSITIVE, -0.0]),
        };
        let rows = vec![
            RowOutput::Nothing,
            RowOutput::Candidates { ids: vec![7], logits: vec![0.25], log_sum_exp: 1.0 },
            RowOutput::Logits(vec![f32::INFINITY, 1.0]),
            RowOutput::NonFinite { at: "blk.3.l_out".into() },
        ];
        let activations = Activations::Q8;
        vec![
            Message::Hello { stage: 3, identity },
            Message::Start(Sizes { rows: 1, blocks: 2, context: 3, activations }),
            Message::Ready(Limits {
                vocab: 1,
                rows: 2,
                blocks: 3,
                context: 4,
                width: 5,
                drafts: false,
                takes: 6,
            }),
            Message::Step(StepBatch { hidden: None, want_hidden: false, ..batch.clone() }),
            Message::Step(batch),
            Message::Output(StepOutput { rows, hidden: vec![2.0] }),
            Message::Beat,
            Message::Bye,
            Message::Failed("because".into()),
        ]
    }

    #[test]
    fn what_is_said_is_understood() {
        for message in all() {
            assert_eq!(Message::read(&message.bytes()), Ok(message));
        }
    }

    #[test]
    fn broken_bytes_are_errors() {
        for message in all() {
            let good = message.bytes();
            for cut in 0..good.len() {
                assert!(Message::read(&good[..cut]).is_err(), "{message:?} cut after {cut}");
            }
            assert!(Message::read(&[&good[..], &[0]].concat()).is_err(), "{message:?}");
            // lengths and kinds of any value: an error or another message, and at once
            for at in 0..good.len() {
                for byte in [0, 1, 0x7f, 0xff] {
                    let mut bad = good.clone();
                    bad[at] = byte;
                    let _ = Message::read(&bad);
                }
            }
        }
        let mut other = Message::Hello { stage: 0, identity: Identity(vec![]) }.bytes();
        other[1] = 9;
        assert!(Message::read(&other).unwrap_err().contains("version 9 of the protocol"));
        assert!(Message::read(&[]).is_err());
    }
}
