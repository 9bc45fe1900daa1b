//! A later stage: joins stage 0, loads its layers, and runs what it is given until it is told that all is done.

use super::identity::Identity;
use super::link::{self, Heard, Speaker};
use super::message::{self, Message, Sizes};
use super::{PATIENCE, Place};
use crate::wire::{BackendArgs, ModelArgs, Opened};
use anyhow::{Context, anyhow, bail};
use shardwright_cpu::CpuOptions;
use shardwright_model::exec::StepBatch;
use shardwright_model::op::Description;
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Between two attempts to reach stage 0.
const AGAIN: Duration = Duration::from_millis(100);

/// Runs a stage to its end.
///
/// # Errors
/// The model does not open, stage 0 is not there or has another model, or one of the stages fails or goes.
pub(crate) fn work(model: &ModelArgs, args: &BackendArgs, place: &Place) -> anyhow::Result<()> {
    let opened = model.open()?;
    let mut stages = opened.stages(place.stages)?;
    let identity = Identity::of(&opened, &stages, args);
    let mut stream = connect(place)?;
    let name = format!("stage 0 ({}:{})", place.address.0, place.address.1);
    link::say(&mut stream, &Message::Hello { stage: place.stage as u32, identity })
        .with_context(|| name.clone())?;
    let (tell, inbox) = channel();
    let hear = tell.clone();
    let speaker = link::open(stream, name.clone(), move |heard| {
        // nobody listens any more if this fails
        let _ = hear.send(heard);
    })?;
    let Message::Start(sizes) = next(&inbox)? else { bail!("{name} does not begin as it should") };
    let (steps, todo) = channel();
    let (part, args, hands) = (stages.swap_remove(place.stage), args.clone(), speaker.clone());
    let what = format!("stage {} of {}", place.stage, place.stages);
    let compute = move || {
        let run = AssertUnwindSafe(|| compute(&opened, &args, &part, sizes, &todo, &hands));
        let result = catch_unwind(run).unwrap_or_else(|_| Err(anyhow!("a fault of the program")));
        if let Err(e) = result {
            let why = format!("{e:#}");
            // stage 0 may have gone, which is the reason then
            let _ = hands.say(&Message::Failed(why.clone()));
            let _ = tell.send(Err(why));
        }
    };
    std::thread::Builder::new().name("stage".into()).spawn(compute).context("no thread to be had")?;
    log::info!("{what} has joined {name}");
    loop {
        match next(&inbox)? {
            Message::Step(batch) => steps.send(batch).map_err(|_| anyhow!("{what} has stopped"))?,
            Message::Bye => return Ok(()),
            _ => bail!("{name} says what is not for {what}"),
        }
    }
}

fn next(inbox: &Receiver<Heard>) -> anyhow::Result<Message> {
    inbox.recv().map_err(|_| anyhow!("the connection was closed"))?.map_err(|why| anyhow!(why))
}

/// Stage 0 may come later.
fn connect(place: &Place) -> anyhow::Result<TcpStream> {
    let (host, port) = &place.address;
    let begun = Instant::now();
    loop {
        match TcpStream::connect((host.as_str(), *port)) {
            Ok(stream) => {
                link::prepare(&stream)?;
                return Ok(stream);
            }
            Err(e) if begun.elapsed() > PATIENCE => {
                return Err(e).with_context(|| format!("stage 0 is not at {host}:{port}"));
            }
            Err(e) => log::debug!("stage 0 is not yet at {host}:{port}: {e}"),
        }
        std::thread::sleep(AGAIN);
    }
}

/// Loads the layers, then runs step after step.
fn compute(
    opened: &Opened,
    args: &BackendArgs,
    part: &Description,
    sizes: Sizes,
    todo: &Receiver<StepBatch>,
    speaker: &Speaker,
) -> anyhow::Result<()> {
    let Sizes { rows, blocks, context, activations } = sizes;
    let (threads, ranks) = (args.threads(), args.ranks(false));
    let options = CpuOptions { threads, rows, blocks, context, activations, ranks };
    let mut executor = opened.on_cpu(args, part, options)?;
    let limits = executor.limits();
    speaker.allow(message::step_bytes(&limits));
    speaker.say(&Message::Ready(limits))?;
    for batch in todo {
        let output = executor.step(&batch)?;
        speaker.say(&Message::Output(output))?;
    }
    Ok(())
}
