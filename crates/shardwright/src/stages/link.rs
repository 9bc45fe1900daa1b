//! A connection between two stages that notices when the other end is gone: both say something twice a second, whatever
//! else they do, and who hears nothing for three seconds gives up.

use super::frame::{self, Fault};
use super::message::{Message, SMALL};
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// Between two signs of life.
const BEAT: Duration = Duration::from_millis(500);
/// Without a sign of life the other end is taken for dead.
pub(super) const SILENCE: Duration = Duration::from_secs(3);

/// What is heard from the other end; an error is the last.
pub(super) type Heard = Result<Message, String>;

/// Speaks to the other end. When the last one is dropped the connection is closed.
#[derive(Clone, Debug)]
pub(super) struct Speaker(Arc<Line>);

#[derive(Debug)]
struct Line {
    stream: Mutex<TcpStream>,
    /// Most bytes of what the other end may say.
    most: Arc<AtomicUsize>,
}

impl Drop for Line {
    fn drop(&mut self) {
        let stream = self.stream.get_mut().unwrap_or_else(PoisonError::into_inner);
        // what was said last still arrives; if nobody is there any more it is closed already
        let _ = stream.shutdown(Shutdown::Write);
    }
}

impl Line {
    fn say(&self, message: &Message) -> io::Result<()> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        say(&mut stream, message).inspect_err(|_| {
            // half a frame may have left: nothing after it would be understood
            let _ = stream.shutdown(Shutdown::Both);
        })
    }
}

/// Speaks to the other end as long as somebody else does.
#[derive(Clone, Debug)]
pub(super) struct Aside(Weak<Line>);

impl Aside {
    pub(super) fn say(&self, message: &Message) {
        // who has gone needs not be told
        self.0.upgrade().map(|line| line.say(message));
    }
}

impl Speaker {
    pub(super) fn say(&self, message: &Message) -> io::Result<()> {
        self.0.say(message)
    }

    /// From now on messages may be as long as this.
    pub(super) fn allow(&self, most: usize) {
        self.0.most.store(most, Ordering::Relaxed);
    }

    pub(super) fn aside(&self) -> Aside {
        Aside(Arc::downgrade(&self.0))
    }
}

/// Makes a stream ready: small messages leave at once, and nothing waits forever.
pub(super) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))
}

/// One message to an end that is not listened to yet.
pub(super) fn say(stream: &mut TcpStream, message: &Message) -> io::Result<()> {
    frame::write(stream, &message.bytes())
}

/// One message of at most `most` bytes.
pub(super) fn word(stream: &mut TcpStream, most: impl FnOnce() -> usize) -> Result<Message, Fault> {
    Message::read(&frame::read(stream, most)?).map_err(Fault::Broken)
}

/// Takes over a prepared stream. `hear` is called from a thread of the connection with everything that the other end, whose
/// name is `name`, says.
pub(super) fn open(
    stream: TcpStream,
    name: String,
    mut hear: impl FnMut(Heard) + Send + 'static,
) -> io::Result<Speaker> {
    let mut ear = stream.try_clone()?;
    let most = Arc::new(AtomicUsize::new(SMALL));
    let line = Arc::new(Line { stream: Mutex::new(stream), most: most.clone() });
    let heart = Arc::downgrade(&line);
    let thread = |what: &str| std::thread::Builder::new().name(format!("stage {what}"));
    thread("beats").spawn(move || {
        while heart.upgrade().is_some_and(|line| line.say(&Message::Beat).is_ok()) {
            std::thread::sleep(BEAT);
        }
    })?;
    thread("hears").spawn(move || {
        loop {
            match word(&mut ear, || most.load(Ordering::Relaxed)) {
                Ok(Message::Beat) => {}
                Ok(Message::Failed(why)) => return hear(Err(format!("{name} has failed: {why}"))),
                Ok(message) => hear(Ok(message)),
                Err(fault) => return hear(Err(format!("{name} {fault}"))),
            }
        }
    })?;
    Ok(Speaker(line))
}
