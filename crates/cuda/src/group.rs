//! Several devices that work as one: a thread for each rank, which alone speaks to its device.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};

use shardwright_gguf::Reader;
use shardwright_model::op::Description;
use shardwright_model::plan::RankPlan;

use crate::device::{Abort, Device};
use crate::exec::CudaOptions;
use crate::worker::{Answer, Cut, Shown, Task, Worker};
use crate::{Error, Result};

/// A step on a card that still works.
const LONGEST: Duration = Duration::from_secs(10);

/// Values that a rank may be ahead of the others in a step that is shown.
const AHEAD: usize = 4;

/// A value that is shown, where a library sums, comes no later after the one before: kernels may have to be compiled first.
const SHOWN: Duration = Duration::from_secs(120);

/// How long the others may still take to tell why, when one has failed.
const GRACE: Duration = Duration::from_millis(200);

/// How long ranks may take to come back once nobody is waited for any more.
const RETURN: Duration = Duration::from_secs(5);

/// How often that is looked after.
const GLANCE: Duration = Duration::from_millis(1);

/// All ranks.
pub(crate) struct Group {
    orders: Vec<Sender<Order>>,
    events: Receiver<(usize, Event)>,
    /// They end with what they hold: peers may write to a rank's inbox as long as any of them runs a step.
    threads: Vec<JoinHandle<Option<Worker>>>,
    /// Where a library sums: what ends its waiting for a rank that does not come, of each.
    aborts: Vec<Abort>,
    /// How long a step may take with all waiting for peers.
    patience: Duration,
    /// Have all loaded?
    ready: bool,
}

/// What a rank is to do.
enum Order {
    /// Where everybody's inbox lies.
    Meet(Vec<u64>),
    /// All have loaded.
    Started,
    /// Say whether the device is still there.
    Check,
    Step(Arc<Task>),
    /// Op by op, with every value.
    Show(Arc<Task>, SyncSender<Shown>),
}

/// What a rank tells.
enum Event {
    /// Where its inbox lies.
    Inbox(u64),
    /// Bytes of weights that have come.
    Loaded(u64),
    /// It has loaded.
    Ready,
    Done(Box<Answer>),
    /// It can't go on.
    Failed(Error),
}

/// A description with the plans of all ranks.
#[derive(Clone)]
pub(crate) struct Whole {
    pub(crate) description: Arc<Description>,
    pub(crate) plans: Arc<Vec<RankPlan>>,
}

impl Whole {
    fn of(&self, rank: usize) -> Cut<'_> {
        (&self.description, vec![self.plans[rank].clone()])
    }
}

impl Group {
    /// A thread for each device, the first of which is rank 0's.
    pub(crate) fn new(
        devices: Vec<Box<dyn Device>>,
        file: &Arc<Reader>,
        (trunk, draft): (Whole, Option<Whole>),
        options: &CudaOptions,
        points: usize,
        watch: &mut dyn FnMut(u64),
    ) -> Result<Group> {
        let (tell, events) = channel();
        let patience = options.patience.iter().sum();
        let aborts = devices.iter().filter_map(|device| device.abort()).collect();
        let mut group = Group { orders: vec![], events, threads: vec![], aborts, patience, ready: false };
        for (rank, device) in devices.into_iter().enumerate() {
            let (orders, todo) = channel();
            let (file, trunk, draft, options) = (file.clone(), trunk.clone(), draft.clone(), options.clone());
            let seat = Seat { rank, todo, tell: tell.clone() };
            let work = move || {
                let mut worker = None;
                let all = (trunk.of(rank), draft.as_ref().map(|d| d.of(rank)));
                let run = AssertUnwindSafe(|| seat.work(&mut worker, device, &file, all, &options, points));
                match catch_unwind(run) {
                    Ok(Ok(())) => {}
                    Ok(Err(e)) => seat.say(Event::Failed(e)),
                    Err(panic) => seat.say(Event::Failed(Error::Gone { rank, why: said(&*panic) })),
                }
                worker
            };
            let thread = Builder::new().name(format!("rank {rank}")).spawn(work);
            group.threads.push(thread.map_err(|e| Error::Gone { rank, why: e.to_string() })?);
            group.orders.push(orders);
        }
        group.start(watch)?;
        Ok(group)
    }

    /// Lets all load, and tells of it.
    fn start(&mut self, watch: &mut dyn FnMut(u64)) -> Result<()> {
        let (mut inboxes, mut met, mut ready) = (vec![None; self.orders.len()], false, 0);
        while ready < self.orders.len() {
            let Ok((rank, event)) = self.events.recv() else { return Err(odd(0)) };
            match event {
                Event::Inbox(at) => inboxes[rank] = Some(at),
                Event::Loaded(bytes) => watch(bytes),
                Event::Ready => ready += 1,
                Event::Failed(e) => return Err(e),
                Event::Done(_) => return Err(odd(rank)),
            }
            if let (false, Some(all)) = (met, inboxes.iter().copied().collect::<Option<Vec<u64>>>()) {
                self.order(|| Order::Meet(all.clone()));
                met = true;
            }
        }
        self.ready = true;
        Ok(())
    }

    /// Everybody has been seen to work: peers have less time from now on.
    pub(crate) fn started(&mut self, options: &CudaOptions) {
        self.patience = LONGEST + options.patience[1];
        self.order(|| Order::Started);
    }

    /// Is everybody still there?
    pub(crate) fn check(&self) -> Result<()> {
        self.order(|| Order::Check);
        self.answers(self.patience).map(drop)
    }

    /// Runs a step on all; `show` gets the values of one that is run op by op, with the parts of all ranks.
    pub(crate) fn run(
        &mut self,
        task: &Arc<Task>,
        show: Option<&mut dyn FnMut(Shown) -> Result<()>>,
    ) -> Result<Vec<Answer>> {
        let patience = self.patience.saturating_mul(1 + task.replays as u32);
        match show {
            None => self.order(|| Order::Step(task.clone())),
            Some(show) => {
                let mut values = vec![];
                self.order(|| {
                    let (value, all) = sync_channel(AHEAD);
                    values.push(all);
                    Order::Show(task.clone(), value)
                });
                // a rank that has failed ends this, or in a library's sum one that is not there; why is asked for below
                let limit = if self.aborts.is_empty() { Duration::MAX } else { SHOWN };
                let next = |of: &Receiver<Shown>| of.recv_timeout(limit);
                while let Ok(shown) = values.iter().map(next).collect::<Shows>() {
                    show(joined(shown))?;
                }
            }
        }
        self.answers(patience)
    }

    /// What all have answered, or why one has not: the reason that others suffered from, if it is told.
    fn answers(&self, patience: Duration) -> Result<Vec<Answer>> {
        let mut answers: Vec<Option<Answer>> = self.orders.iter().map(|_| None).collect();
        let (mut failed, mut heard, mut until) = (None, 0, Instant::now() + patience);
        while heard < answers.len() {
            match self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok((rank, Event::Done(answer))) => answers[rank] = Some(*answer),
                Ok((_, Event::Failed(e))) => {
                    failed = Some(first(failed, e));
                    until = until.min(Instant::now() + GRACE);
                }
                Ok((rank, _)) => failed = Some(odd(rank)),
                Err(_) => break,
            }
            heard += 1;
        }
        let silent = answers.iter().position(Option::is_none);
        let ended = match (failed, silent) {
            (Some(e), _) => Err(e),
            (None, Some(rank)) => Err(Error::Gone { rank, why: self.silence().into() }),
            (None, None) => Ok(answers.into_iter().flatten().collect()),
        };
        if ended.is_err() {
            self.abort();
        }
        ended
    }

    /// Why a rank has not answered.
    fn silence(&self) -> &'static str {
        match self.aborts.is_empty() {
            true => "its card has not answered in time",
            false => {
                "its card has not answered in time; its sums are NCCL's, which do not tell for which rank they wait"
            }
        }
    }

    /// Ends all waiting of ranks for each other.
    fn abort(&self) {
        self.aborts.iter().for_each(|abort| abort());
    }

    /// Have all threads ended, or do so soon?
    fn return_soon(&self) -> bool {
        let until = Instant::now() + RETURN;
        while !self.threads.iter().all(JoinHandle::is_finished) {
            if Instant::now() > until {
                return false;
            }
            thread::sleep(GLANCE);
        }
        true
    }

    /// The same to all. Who has gone has said why.
    fn order(&self, mut order: impl FnMut() -> Order) {
        self.orders.iter().for_each(|to| {
            let _ = to.send(order());
        });
    }
}

type Shows = std::result::Result<Vec<Shown>, RecvTimeoutError>;

impl Drop for Group {
    fn drop(&mut self) {
        self.orders.clear();
        let back = |group: &Group| group.ready && (group.aborts.is_empty() || group.return_soon());
        if !back(self) {
            // in a library's sum a rank would wait for ever for one that is gone
            self.abort();
        }
        // who still loads ends by itself, and why this ends is not held up by it
        if !back(self) {
            return;
        }
        // all have ended before anything is given back
        let ended: Vec<_> = self.threads.drain(..).map(JoinHandle::join).collect();
        if self.aborts.is_empty() {
            return drop(ended);
        }
        give_back(ended);
    }
}

/// Gives back what ranks have, which a library takes of one when all have come to give it back.
pub fn give_back<T: Send>(all: Vec<T>) {
    thread::scope(|scope| {
        for one in all {
            scope.spawn(move || drop(one));
        }
    });
}

/// Of two errors the one that the other follows from: absence of a peer, the earlier, only if there is nothing else.
pub(crate) fn first(known: Option<Error>, e: Error) -> Error {
    match (known, e) {
        (None, e)
        | (
            Some(Error::Late { .. } | Error::GivenUp { .. }),
            e @ (Error::Cuda { .. } | Error::Nccl { .. } | Error::Gone { .. } | Error::Driver(_)),
        ) => e,
        (Some(Error::Late { op, .. }), e @ Error::Late { op: other, .. }) if other < op => e,
        (Some(known), _) => known,
    }
}

fn odd(rank: usize) -> Error {
    Error::Gone { rank, why: "its thread does not answer as it should".into() }
}

/// The parts of all ranks of the same value.
fn joined(shown: Vec<Shown>) -> Shown {
    let mut all = shown.into_iter();
    let mut first = all.next().unwrap_or(Shown { at: [0, 0], rows: 0, parts: vec![] });
    first.parts.extend(all.flat_map(|shown| shown.parts));
    first
}

pub(crate) fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    format!("its thread has panicked: {}", text.unwrap_or("no reason is known"))
}

/// A rank's end of the channels.
struct Seat {
    rank: usize,
    todo: Receiver<Order>,
    tell: Sender<(usize, Event)>,
}

impl Seat {
    /// Loads, then does what it is told until nobody tells any more.
    fn work(
        &self,
        worker: &mut Option<Worker>,
        mut device: Box<dyn Device>,
        file: &Arc<Reader>,
        cuts: (Cut<'_>, Option<Cut<'_>>),
        options: &CudaOptions,
        points: usize,
    ) -> Result<()> {
        device.settle()?;
        let mut watch = |bytes| self.say(Event::Loaded(bytes));
        let mut meet = |inbox| {
            self.say(Event::Inbox(inbox));
            match self.todo.recv() {
                Ok(Order::Meet(inboxes)) => Ok(inboxes),
                _ => Err(Error::Plan("the other ranks did not come".into())),
            }
        };
        let loaded = Worker::new(device, file, cuts, options, points, &mut meet, &mut watch)?;
        let worker = worker.insert(loaded);
        self.say(Event::Ready);
        while let Ok(order) = self.todo.recv() {
            let mut answer = Box::<Answer>::default();
            match order {
                Order::Meet(_) => continue,
                Order::Check => worker.check()?,
                Order::Started => {
                    worker.started()?;
                    continue;
                }
                Order::Step(task) => worker.run(&task, None, &mut answer)?,
                Order::Show(task, values) => {
                    // who looked has gone because of another rank
                    let gone = |_| Error::Late {
                        op: usize::MAX,
                        rank: self.rank,
                        path: "a value to show".into(),
                        missing: vec![],
                    };
                    worker.run(&task, Some(&mut |shown| values.send(shown).map_err(gone)), &mut answer)?
                }
            }
            self.say(Event::Done(answer));
        }
        Ok(())
    }

    fn say(&self, event: Event) {
        // nobody listens any more if this fails, and then there are no more orders
        let _ = self.tell.send((self.rank, event));
    }
}
