//! Whatever header opens: numbers, description, plans, budget, and what is printed of them.

use shardwright_gguf::{Header, QuantType, TensorInfo, parse_header};
use shardwright_model::budget::{self, Demand};
use shardwright_model::hyper::{Options, Source};
use shardwright_model::op::Description;
use shardwright_model::plan::{RankPlan, legal_ranks, plan};
use shardwright_model::{arch, cost, dump};
use shardwright_text::tokenizer::Tokenizer;
use std::collections::{HashMap, HashSet};

use crate::gguf::{check, look_up};
use crate::{Input, one_line};

/// Bytes of the file that the header is the beginning of; the rest of it are zeros.
const FILE: usize = 4 << 20;

/// Weights that a file of this size can hold are worth a plan.
const GREATEST: u64 = 1 << 50;

/// The bytes are the beginning of a file, behind a few choices.
pub fn model(data: &[u8]) {
    let mut input = Input::new(data);
    let flags = input.byte();
    let ranks = 1 + usize::from(input.byte() % 16);
    let invented = (flags & 4 == 4).then(|| input.pick(QuantType::ALL));
    let start = input.rest();
    let mut file = vec![0; FILE.max(start.len())];
    file[..start.len()].copy_from_slice(start);
    let header = match parse_header(&file) {
        Ok(header) => header,
        Err(e) => return one_line(&e),
    };
    check(&header, file.len() as u64);
    look_up(&header.meta);
    if let Err(e) = Tokenizer::from_meta(&header.meta) {
        one_line(&e);
    }
    let options = Options { deal_embedding: flags & 1 == 1, dense_attention: flags & 2 == 2 };
    understand(&header, options, invented, ranks);
}

fn understand(header: &Header, options: Options, invented: Option<QuantType>, ranks: usize) {
    let listed: Vec<TensorInfo> = header.tensors.iter().map(info).collect();
    let names: HashSet<&str> = listed.iter().map(|t| t.name.as_str()).collect();
    let has = |name: &str| Some(names.contains(name));
    let any = |_: &str| None;
    let source = Source { meta: &header.meta, has: if invented.is_some() { &any } else { &has }, options };
    let hyper = match arch::read(&source) {
        Ok(hyper) => hyper,
        Err(e) => return one_line(&e),
    };
    hyper.notes.iter().for_each(one_line);
    dump::hyper(&hyper);
    let (trunk, draft) = (arch::describe(&hyper), arch::draft(&hyper));
    let tensors = match invented {
        Some(quant) => {
            [Some(&trunk), draft.as_ref()].into_iter().flatten().flat_map(|d| all(d, quant)).collect()
        }
        None => listed,
    };
    if tensors.iter().try_fold(0u64, |sum, t| sum.checked_add(t.bytes)).is_none_or(|sum| sum > GREATEST) {
        return;
    }
    let by_name: HashMap<&str, &TensorInfo> = tensors.iter().map(|t| (t.name.as_str(), t)).collect();
    let find = |name: &str| by_name.get(name).copied();
    for d in [Some(&trunk), draft.as_ref()].into_iter().flatten() {
        dump::description(d);
        match plan(d, &find, ranks) {
            Ok(plans) => weigh(d, &plans),
            Err(e) => one_line(&e),
        }
    }
    if let Ok(legal) = legal_ranks(&trunk, &find) {
        assert_eq!(legal.contains(&ranks), plan(&trunk, &find, ranks).is_ok());
        let demand = Demand { context: hyper.context as u64, rows: 512, element: 4 };
        if let Err(e) = budget::held(&trunk, draft.as_ref(), &find, 1, 4) {
            one_line(&e);
        }
        if let Err(e) = budget::fewest_ranks(&trunk, None, &find, &demand, 80 << 30) {
            one_line(&e);
        }
    }
}

/// Every part lies within its tensor.
fn weigh(d: &Description, plans: &[RankPlan]) {
    for p in plans {
        dump::rank_plan(d, p);
        cost::total(&cost::by_component(d, p, 4096, 2));
        for w in p.ops.iter().flat_map(|o| &o.weights).filter(|w| w.bytes() > 0) {
            let last = w.row(w.copies.len() - 1, w.rows.len() - 1);
            assert!(w.rows.end <= w.file_rows && last.end - w.offset <= GREATEST, "{w:?}");
        }
    }
    budget::balance(d, plans);
}

fn info(t: &shardwright_gguf::RawTensor) -> TensorInfo {
    TensorInfo { name: t.name.clone(), quant: t.quant, ne: t.ne, file: 0, offset: t.offset, bytes: t.bytes }
}

/// The tensors that a description asks for, in one type where it goes.
fn all(d: &Description, quant: QuantType) -> impl Iterator<Item = TensorInfo> {
    d.weights().map(move |w| {
        let mut ne = [1; 4];
        ne[..w.ne.len()].copy_from_slice(&w.ne);
        let quant = if w.ne.len() > 1 && ne[0].is_multiple_of(quant.block_len() as u64) {
            quant
        } else {
            QuantType::F32
        };
        let rows = ne[1..].iter().fold(1u64, |a, b| a.saturating_mul(*b));
        let bytes = (ne[0] / quant.block_len() as u64)
            .saturating_mul(quant.block_bytes() as u64)
            .saturating_mul(rows);
        TensorInfo { name: w.name.clone(), quant, ne, file: 0, offset: 0, bytes }
    })
}
