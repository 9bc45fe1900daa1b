//! Stage 0: waits for the others, has all of them load, and makes one executor of them.

use super::identity::Identity;
use super::link::{self, Heard, Speaker};
use super::message::{Message, SMALL, Sizes};
use super::remote::{Fate, Remote};
use super::{PATIENCE, Place};
use crate::wire::{BackendArgs, Opened};
use anyhow::{Context, anyhow, bail};
use shardwright_cpu::CpuOptions;
use shardwright_model::exec::Executor;
use shardwright_model::pipeline::Pipeline;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How often it is looked whether somebody has come.
const LOOK: Duration = Duration::from_millis(20);

/// Somebody who has said what it is.
struct Guest {
    stream: TcpStream,
    from: SocketAddr,
    said: Said,
}

/// What it said.
struct Said {
    stage: usize,
    identity: Identity,
}

/// A stage that has joined.
struct Joined {
    name: String,
    speaker: Speaker,
    inbox: Receiver<Heard>,
}

/// Makes an executor of all stages; this process runs the first.
///
/// # Errors
/// This is not stage 0, it cannot listen, somebody does not come or does not fit, or a stage cannot be loaded.
pub(crate) fn lead(
    opened: &Opened,
    args: &BackendArgs,
    options: CpuOptions,
    place: &Place,
) -> anyhow::Result<Box<dyn Executor>> {
    if place.stage > 0 {
        bail!(
            "this command runs in one process; `run`, `serve`, `generate`, `logits` and `eval` run in stages"
        );
    }
    let stages = opened.stages(place.stages)?;
    let identity = Identity::of(opened, &stages, args);
    let fate = Arc::new(Fate::default());
    // whoever came hears how it went
    let mut present = vec![];
    let all = gather(place, &identity, &fate, &mut present).inspect_err(|e| fate.fail(&format!("{e:#}")))?;
    let CpuOptions { rows, blocks, context, activations, .. } = options;
    for joined in &all {
        // who has gone meanwhile is missed below
        let _ = joined.speaker.say(&Message::Start(Sizes { rows, blocks, context, activations }));
    }
    let own = opened.on_cpu(args, &stages[0], options).inspect_err(|e| fate.fail(&format!("{e:#}")))?;
    let mut executors: Vec<Box<dyn Executor>> = vec![own];
    for Joined { name, speaker, inbox } in all {
        executors.push(Box::new(Remote::ready(name, speaker, inbox, fate.clone())?));
    }
    log::info!("all {} stages are loaded", place.stages);
    Ok(Box::new(Pipeline::new(executors)?))
}

/// Waits until every other stage is there.
fn gather(
    place: &Place,
    identity: &Identity,
    fate: &Arc<Fate>,
    present: &mut Vec<Speaker>,
) -> anyhow::Result<Vec<Joined>> {
    let (host, port) = &place.address;
    let at = || format!("stage 0 cannot listen on {host}:{port}");
    let listener = TcpListener::bind((host.as_str(), *port)).with_context(at)?;
    listener.set_nonblocking(true).with_context(at)?;
    log::info!("stage 0 of {} waits for the others on {}", place.stages, listener.local_addr()?);
    let (tell, guests) = channel();
    let mut seats: Vec<Option<Joined>> = (1..place.stages).map(|_| None).collect();
    let begun = Instant::now();
    while let Some(missing) = seats.iter().position(Option::is_none) {
        welcome(&listener, &tell)?;
        match guests.recv_timeout(LOOK) {
            Ok(guest) => {
                let (joined, said) = greet(guest, fate)?;
                present.push(joined.speaker.clone());
                seat(joined, said, identity, &mut seats)?;
            }
            Err(RecvTimeoutError::Disconnected) => bail!("nobody listens any more"),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(why) = fate.why() {
            bail!(why);
        }
        if begun.elapsed() > PATIENCE {
            bail!("stage {} has not come within {} s", missing + 1, PATIENCE.as_secs());
        }
    }
    Ok(seats.into_iter().flatten().collect())
}

/// Hears who has come, each in a thread: a stranger that says nothing keeps nobody waiting.
fn welcome(listener: &TcpListener, tell: &Sender<Guest>) -> anyhow::Result<()> {
    // an error is of one who came and went, or of too many files; the others come still
    let Ok((mut stream, from)) = listener.accept() else { return Ok(()) };
    let tell = tell.clone();
    let hear = move || {
        let ready = stream.set_nonblocking(false).and_then(|()| link::prepare(&stream));
        match ready.map_err(Into::into).and_then(|()| link::word(&mut stream, || SMALL)) {
            Ok(Message::Hello { stage, identity }) => {
                // nobody waits for it any more if this fails
                let _ = tell.send(Guest { stream, from, said: Said { stage: stage as usize, identity } });
            }
            Ok(_) => log::warn!("{from} is no stage: it does not begin with a greeting"),
            Err(fault) => {
                log::warn!("{from} is no stage of this program: it {fault}");
                let why = Message::Failed(format!("stage 0 does not understand: it {fault}"));
                // a stage of another version should know; who is none does not matter
                let _ = link::say(&mut stream, &why);
            }
        }
    };
    std::thread::Builder::new().name("stage comes".into()).spawn(hear).context("no thread to be had")?;
    Ok(())
}

/// Makes a connection of whoever has said what it is.
fn greet(guest: Guest, fate: &Arc<Fate>) -> anyhow::Result<(Joined, Said)> {
    let Guest { stream, from, said } = guest;
    let name = format!("stage {} ({from})", said.stage);
    let (tell, inbox) = channel();
    let heard = fate.clone();
    let speaker = link::open(stream, name.clone(), move |said| {
        if let Err(why) = &said {
            heard.fail(why);
        }
        // nobody listens any more if this fails
        let _ = tell.send(said);
    })
    .with_context(|| name.clone())?;
    fate.join(speaker.aside());
    Ok((Joined { name, speaker, inbox }, said))
}

/// Gives a stage its seat. One that does not fit would be missing, so that ends it all, on both sides.
fn seat(joined: Joined, said: Said, identity: &Identity, seats: &mut [Option<Joined>]) -> anyhow::Result<()> {
    let (name, count) = (&joined.name, seats.len());
    identity.check(&said.identity).map_err(|what| anyhow!("{name} does not fit to stage 0, {what}"))?;
    match said.stage.checked_sub(1).and_then(|at| seats.get_mut(at)) {
        None => bail!("{name} came, but the others are 1 to {count}"),
        Some(Some(other)) => bail!("{name} came, but there is {} already", other.name),
        Some(seat) => *seat = Some(joined),
    }
    Ok(())
}
