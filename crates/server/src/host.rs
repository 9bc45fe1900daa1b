//! Takes connections for an application, until it is told to end.

use crate::app::{self, Shared};
use crate::connection;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

/// An application that can be reached.
#[derive(Debug)]
pub struct Host {
    ending: watch::Sender<bool>,
    connections: TaskTracker,
    accepting: JoinHandle<()>,
}

impl Host {
    /// Begins to take connections.
    pub fn new(app: &Shared, listener: TcpListener) -> Host {
        let ending = watch::Sender::new(false);
        let connections = TaskTracker::new();
        let accepting = tokio::spawn(accept(listener, app.clone(), ending.clone(), connections.clone()));
        Host { ending, connections, accepting }
    }

    /// Ends connections with the answers that are on their way, if they take no longer than `most`.
    pub async fn end(self, most: Duration) {
        // Those who come now still hear that it is over.
        self.ending.send_replace(true);
        self.connections.close();
        let _ = tokio::time::timeout(most, self.connections.wait()).await;
        self.accepting.abort();
    }
}

/// Binds to a host's first address that is free.
pub(crate) async fn listen(host: &str, port: u16) -> io::Result<TcpListener> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host((bare, port)).await?.collect();
    TcpListener::bind(&*addresses).await
}

/// Takes connections until it is aborted.
async fn accept(listener: TcpListener, app: Shared, ending: watch::Sender<bool>, connections: TaskTracker) {
    let router = app::router(&app);
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                let idle = app.options.idle;
                connections.spawn(connection::serve(socket, router.clone(), idle, ending.subscribe()));
            }
            Err(e) => {
                // Most likely there are too many open files; some will be closed.
                tracing::warn!("a connection cannot be taken: {e}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}
