//! Connections: limits of time, and the difference between a client that has left and one that only has no more to say.
//!
//! Both look alike at first: the client's side of the connection is closed. A client that has left answers whatever is
//! sent to it with a reset. Streams send something all the time; while an answer is still computed, an interim response
//! (100, which clients skip) asks. A reset drops the connection, and with it the requests of that client.

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// How long and how much a client may still send after the last answer. Many do not listen before they have sent all,
/// and a connection closed before that is reset: the answer would be lost.
const LINGER: (Duration, usize) = (Duration::from_secs(30), 256 << 20);

/// How long a client that has closed its side is not asked whether it still listens.
const PAUSE: Duration = Duration::from_millis(400);

const INTERIM: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// What the connection and its watcher both see.
#[derive(Debug)]
struct Line {
    socket: TcpStream,
    /// Something of a response has been sent since the last byte came in.
    answering: AtomicBool,
}

/// One end of a connection.
struct Socket(Arc<Line>);

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let line = &*self.0;
        loop {
            ready!(line.socket.poll_read_ready(cx))?;
            match line.socket.try_read(buf.initialize_unfilled()) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(e)),
                Ok(n) => {
                    line.answering.fetch_and(n == 0, Ordering::Relaxed);
                    buf.advance(n);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let line = &*self.0;
        line.answering.store(true, Ordering::Relaxed);
        loop {
            ready!(line.socket.poll_write_ready(cx))?;
            match line.socket.try_write(bytes) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A client that has gone has closed it already.
        let _ = socket2::SockRef::from(&self.0.socket).shutdown(std::net::Shutdown::Write);
        Poll::Ready(Ok(()))
    }
}

/// Serves one connection until it ends, or its client has left. A request's head must arrive within `idle`, and a
/// connection without requests ends after it. When `ending` turns true, it ends with the answer that is on its way.
pub(crate) async fn serve(
    socket: TcpStream,
    router: Router,
    idle: Duration,
    mut ending: watch::Receiver<bool>,
) {
    // Without it small pieces wait for each other.
    let _ = socket.set_nodelay(true);
    let line = Arc::new(Line { socket, answering: AtomicBool::new(false) });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(idle)
        .half_close(true)
        .serve_connection(TokioIo::new(Socket(line.clone())), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    let mut gone = pin!(gone(&line));
    let mut told = false;
    loop {
        tokio::select! {
            result = &mut connection => {
                match result {
                    Ok(()) => break,
                    Err(e) => return tracing::debug!("a connection ends: {e}"),
                }
            }
            () = &mut gone => {
                tracing::debug!("a client has left");
                return;
            }
            _ = ending.wait_for(|ending| *ending), if !told => {
                told = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
    tokio::select! {
        () = drain(&line.socket) => {}
        _ = ending.wait_for(|ending| *ending) => {}
    }
}

/// Reads what a client sends that has been answered already, until it has closed its side.
async fn drain(socket: &TcpStream) {
    let (longest, most) = LINGER;
    let reading = async {
        let (mut scrap, mut left) = (vec![0; 16 << 10], most);
        while left > 0 && socket.readable().await.is_ok() {
            match socket.try_read(&mut scrap) {
                Ok(0) => break,
                Ok(n) => left = left.saturating_sub(n),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
    };
    // What comes later is reset.
    let _ = tokio::time::timeout(longest, reading).await;
}

/// Returns when the client has left.
async fn gone(line: &Line) {
    let socket = &line.socket;
    let reset = async {
        // An error that is none would be reported again and again.
        while socket.ready(Interest::ERROR).await.is_ok() && socket.take_error().is_ok_and(|e| e.is_none()) {
            tokio::time::sleep(PAUSE).await;
        }
    };
    let ask = async {
        // While it computes an answer, hyper does not read; what lies there may be the next request.
        while socket.ready(Interest::READABLE).await.is_ok_and(|ready| !ready.is_read_closed()) {
            tokio::time::sleep(PAUSE).await;
        }
        tokio::time::sleep(PAUSE).await;
        if !line.answering.load(Ordering::Relaxed) {
            // If it does not fit, there is something else on its way.
            let _ = socket.try_write(INTERIM);
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = reset => {}
        () = ask => {}
    }
}
