//! `shardwright quantize`: a model file with other, mostly smaller, types.

use crate::progress::Written;
use crate::table::bytes;
use anyhow::bail;
use shardwright_gguf::{Conversion, QuantType, Reader, Split, TensorInfo, convert};
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

/// Write a model file with other quantized types.
///
/// Matrices get TYPE; a row length that is no multiple of its blocks gets Q8_0, and F16 where that does not fit
/// either. Vectors (norms, biases), the router and the indexer's head weights stay as they are: they are small, and
/// what they decide is not.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shardwright quantize model-BF16.gguf model-Q8_0.gguf Q8_0
  shardwright quantize model-BF16.gguf model.gguf Q4_K --tensor-type attn=Q8_0 --tensor-type down_exps=Q5_K
  shardwright eval model.gguf --text book.txt --against model-BF16.gguf      what did it cost?")]
pub(crate) struct Args {
    /// The file to read; of a split one, any part.
    input: PathBuf,
    /// The file to write.
    output: PathBuf,
    /// The type of matrices; a name that is none lists them.
    #[arg(value_name = "TYPE", value_parser = encodable)]
    to: QuantType,
    /// Another type for matrices whose name contains PART; the last one that fits counts. May be repeated.
    #[arg(long, value_name = "PART=TYPE", value_parser = part_type)]
    tensor_type: Vec<(String, QuantType)>,
    /// Quantize again what is quantized already, which loses more than quantizing the original.
    #[arg(long)]
    allow_requantize: bool,
    /// Write parts of at most so many bytes.
    #[arg(long, value_name = "BYTES")]
    split_bytes: Option<u64>,
    /// Threads [default: all cores].
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Option<u32>,
}

fn encodable(name: &str) -> Result<QuantType, String> {
    let can = |q: &QuantType| q.encode(&[], &mut Vec::new()).is_ok();
    let all = || QuantType::ALL.iter().filter(|q| can(q)).map(|q| q.name()).collect::<Vec<_>>().join(", ");
    let found = QuantType::from_name(name).ok().filter(can);
    found.ok_or_else(|| format!("no type that can be written; there are {}", all()))
}

fn part_type(text: &str) -> Result<(String, QuantType), String> {
    let (part, name) = text.split_once('=').ok_or("must look like PART=TYPE")?;
    Ok((part.to_owned(), encodable(name)?))
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let reader = Reader::open(&args.input)?;
    let same = |f: &PathBuf| args.output.canonicalize().is_ok_and(|o| f.canonicalize().is_ok_and(|f| f == o));
    if reader.files().iter().any(same) {
        bail!("{} is the file to be read; name another to write", args.output.display());
    }
    let unused = |(part, _): &&(String, QuantType)| !reader.tensors().iter().any(|t| t.name.contains(part));
    if let Some((part, _)) = args.tensor_type.iter().find(unused) {
        bail!("no tensor's name contains `{part}`, which --tensor-type asks for");
    }
    let choose = |t: &TensorInfo| args.choose(t);
    let again = |t: &&TensorInfo| t.quant.block_len() > 1 && choose(t) != t.quant;
    if let Some(t) = reader.tensors().iter().find(again).filter(|_| !args.allow_requantize) {
        bail!(
            "tensor `{}` is {} already; start from an unquantized file, or allow it with --allow-requantize",
            t.name,
            t.quant
        );
    }
    let size = |t: &TensorInfo| {
        choose(t).row_bytes(t.ne[0] as usize).map_or(0, |row| row as u64 * (t.elements() / t.ne[0]))
    };
    let total: u64 = reader.tensors().iter().map(size).sum();
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let conversion = Conversion {
        choose: &choose,
        split: args.split_bytes.map(|n| Split { max_bytes: Some(n), ..Split::default() }),
        threads: args.threads.map_or_else(cores, |n| n as usize),
    };
    let (start, mut bar) = (Instant::now(), Written::new(total));
    let files = convert(&reader, &args.output, &conversion, &mut |n| bar.add(n))?;
    drop(bar);
    for file in &files {
        writeln!(std::io::stdout(), "{}", file.display())?;
    }
    let seconds = start.elapsed().as_secs_f64();
    log::info!("{} from {} in {seconds:.1} s", bytes(total), bytes(reader.total_bytes()));
    Ok(())
}

impl Args {
    fn choose(&self, t: &TensorInfo) -> QuantType {
        let whole = t.dims().len() < 2 || !t.name.ends_with(".weight");
        if whole || ["ffn_gate_inp.", "indexer.proj."].iter().any(|n| t.name.contains(n)) {
            return t.quant;
        }
        let other = self.tensor_type.iter().rev().find(|(part, _)| t.name.contains(part));
        let wanted = other.map_or(self.to, |(_, to)| *to);
        let fits = |q: &QuantType| q.row_bytes(t.ne[0] as usize).is_some();
        [wanted, QuantType::Q8_0].into_iter().find(fits).unwrap_or(QuantType::F16)
    }
}
