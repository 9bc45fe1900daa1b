//! A progress bar on standard error for what takes longer than two seconds, if a person is watching.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(2);

/// Work of known length.
pub(crate) struct Progress {
    what: &'static str,
    total: u64,
    started: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Nothing is shown yet.
    pub(crate) fn new(what: &'static str, total: usize) -> Progress {
        Progress { what, total: total as u64, started: Instant::now(), bar: None }
    }

    /// `done` of the total are done. The bar goes when this is dropped.
    pub(crate) fn at(&mut self, done: usize) {
        if self.bar.is_none() && self.started.elapsed() >= PATIENCE {
            let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}");
            let bar = ProgressBar::new(self.total).with_message(self.what).with_elapsed(PATIENCE);
            self.bar = Some(bar.with_style(style.expect("the template is constant")));
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done as u64);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A bar in megabytes, for files that are written.
pub(crate) struct Written {
    progress: Progress,
    done: u64,
}

impl Written {
    /// `total` bytes are to be written.
    pub(crate) fn new(total: u64) -> Written {
        Written { progress: Progress::new("writing (MB)", (total / 1_000_000) as usize), done: 0 }
    }

    /// So many bytes more are written.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.done += bytes;
        self.progress.at((self.done / 1_000_000) as usize);
    }
}
