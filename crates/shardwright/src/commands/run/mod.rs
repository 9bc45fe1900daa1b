//! `shardwright run`: chat with a model, or one answer.

mod chat;
mod paint;
mod session;

use crate::usage;
use crate::wire::{BackendArgs, ModelArgs};
use anyhow::{Context, bail};
use serde_json::{Map, Value as Json, json};
use session::{Answer, Session};
use shardwright_engine::request::Finish;
use shardwright_engine::sample::Sampling;
use std::hash::{BuildHasher, RandomState};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Chat with a model, or answer one prompt.
///
/// With `-p`, or with a prompt on standard input, one answer is printed; otherwise a chat begins (type /help there).
/// If the file has a chat template the prompt is the user's first message; `--raw` continues the text itself instead,
/// as do files without a template.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shardwright run model.gguf
  shardwright run model.gguf -p \"Why is the sky blue?\" --temp 0
  shardwright run model.gguf --raw -p \"Once upon a time\" -n 100
  git diff | shardwright run model.gguf --system \"Write a commit message\"
  shardwright run --demo -p \"Hello\"

Ctrl-C stops the answer; at the prompt of a chat, twice ends the program.")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) backend: BackendArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Answer this and end.
    #[arg(short, long, value_name = "TEXT")]
    prompt: Option<String>,
    /// What the model is told before the conversation.
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    system: Option<String>,
    /// Continue the prompt as it is, without the chat template.
    #[arg(long, visible_alias = "no-chat")]
    raw: bool,
    /// With --raw: take the texts of control tokens in the prompt for those tokens.
    #[arg(long, requires = "raw")]
    parse_special: bool,
    /// Most tokens of an answer; -1 = until the model ends or the context is full.
    #[arg(short = 'n', long, value_name = "N", default_value_t = -1, allow_negative_numbers = true,
          value_parser = clap::value_parser!(i64).range(-1..))]
    predict: i64,
    /// Most tokens of a conversation; 0 = as many as the model was made for.
    #[arg(short, long, value_name = "N", default_value_t = 4096, allow_negative_numbers = true)]
    ctx_size: u32,
    /// Go on after tokens that end the answer.
    #[arg(long)]
    ignore_eos: bool,
    /// A Jinja file to use as chat template instead of the file's own.
    #[arg(long, value_name = "FILE")]
    chat_template_file: Option<PathBuf>,
    /// Variables for the chat template, such as '{"enable_thinking": false}'.
    #[arg(long, value_name = "JSON", value_parser = object)]
    chat_template_kwargs: Option<Map<String, Json>>,
    /// Print one answer as JSON instead of streaming it.
    #[arg(long)]
    json: bool,
}

/// How tokens are chosen. The order is: penalties, top-k, top-p, min-p, temperature.
#[derive(clap::Args)]
#[command(next_help_heading = "Sampling")]
struct SamplingArgs {
    /// 0 = always the likeliest token.
    #[arg(long, value_name = "X", default_value_t = 0.8, allow_negative_numbers = true)]
    temp: f32,
    /// Choose among the K likeliest tokens; 0 = all.
    #[arg(long, value_name = "K", default_value_t = 40, allow_negative_numbers = true)]
    top_k: i64,
    /// Choose among the likeliest tokens that have this probability together; 1 = all.
    #[arg(long, value_name = "P", default_value_t = 0.95, allow_negative_numbers = true)]
    top_p: f32,
    /// Choose among tokens at least this times as likely as the likeliest; 0 = all.
    #[arg(long, value_name = "P", default_value_t = 0.05, allow_negative_numbers = true)]
    min_p: f32,
    /// Divides the logits of all tokens so far; 1 = off.
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_negative_numbers = true)]
    repeat_penalty: f32,
    /// Subtracted from the logits of tokens of the answer so far; 0 = off.
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    presence_penalty: f32,
    /// Subtracted from the logits of tokens of the answer as often as they occurred; 0 = off.
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    frequency_penalty: f32,
    /// The same seed gives the same answer; -1 = another each time.
    #[arg(long, value_name = "N", default_value = "-1", allow_negative_numbers = true, value_parser = seed)]
    seed: Seed,
}

/// Set by Ctrl-C, taken back by whoever stops for it.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// What shells expect of a program that Ctrl-C ended.
const STOPPED: u8 = 130;

/// Of the draws; None = another each time.
pub(super) type Seed = Option<u64>;

/// Any `u64`; what is below 0 means none.
pub(super) fn seed(text: &str) -> Result<Seed, &'static str> {
    let n = text.parse::<i128>().ok().filter(|n| *n <= i128::from(u64::MAX));
    n.map(|n| u64::try_from(n).ok()).ok_or("must be 0 to 2^64 - 1, or -1 for another each time")
}

fn object(text: &str) -> Result<Map<String, Json>, String> {
    serde_json::from_str(text).map_err(|e| format!("must be a JSON object: {e}"))
}

impl SamplingArgs {
    fn sampling(&self) -> Sampling {
        Sampling {
            temperature: self.temp,
            top_k: usize::try_from(self.top_k).unwrap_or(0),
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repeat_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            seed: self.seed.unwrap_or_else(|| RandomState::new().hash_one(0)),
            ..Sampling::default()
        }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let sampling = args.sampling.sampling();
    if let Err(e) = sampling.check() {
        usage("run", &e.to_string());
    }
    if args.predict == 0 {
        usage("run", "-n must be at least 1, or -1");
    }
    let prompt = match &args.prompt {
        Some(prompt) => Some(prompt.clone()),
        None if std::io::stdin().is_terminal() => None,
        None => Some(std::io::read_to_string(std::io::stdin()).context("standard input")?),
    };
    if prompt.as_ref().is_some_and(|p| p.trim().is_empty()) {
        bail!("the prompt is empty");
    }
    if prompt.is_none() && args.json {
        usage("run", "--json needs a prompt: give one with -p or on standard input");
    }
    let mut session = Session::open(args, sampling)?;
    ctrlc::set_handler(|| {
        // Not even the last one has been seen yet: whatever is busy does not look, so end here.
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            std::process::exit(STOPPED.into());
        }
    })
    .context("cannot listen for Ctrl-C")?;
    match prompt {
        None => chat::chat(&mut session, args.system.clone()).map(|()| ExitCode::SUCCESS),
        Some(prompt) => once(&mut session, args, prompt.trim_end_matches(['\r', '\n'])),
    }
}

fn once(session: &mut Session, args: &Args, prompt: &str) -> anyhow::Result<ExitCode> {
    let prompt = match args.raw || !session.has_template() {
        true => session.raw(prompt, args.parse_special)?,
        false => {
            let system = args.system.iter().map(|s| json!({ "role": "system", "content": s }));
            let messages: Vec<Json> = system.chain([json!({ "role": "user", "content": prompt })]).collect();
            session.templated(&messages)?
        }
    };
    let mut screen = if args.json { paint::Screen::silent() } else { paint::Screen::stdout() };
    let answer = session.answer(prompt, &mut screen)?;
    match args.json {
        true => writeln!(std::io::stdout(), "{}", report(&answer))?,
        false => log::info!("{}", answer.speed),
    }
    Ok(if answer.finish == Finish::Cancelled { STOPPED.into() } else { ExitCode::SUCCESS })
}

fn report(answer: &Answer) -> Json {
    let finish = match answer.finish {
        Finish::EndToken | Finish::StopString => "stop",
        Finish::MaxTokens | Finish::ContextFull => "length",
        Finish::Cancelled => "cancelled",
    };
    json!({
        "content": answer.message.content,
        "reasoning": answer.message.reasoning,
        "finish": finish,
        "prompt_tokens": answer.speed.prompt,
        "answer_tokens": answer.speed.answered,
        "prompt_seconds": answer.speed.prompt_time.as_secs_f64(),
        "answer_seconds": answer.speed.answer_time.as_secs_f64(),
    })
}
