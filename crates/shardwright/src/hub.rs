//! Models of the hub: fetches what is not in the cache yet, and shows how that goes.

use crate::table::bytes;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use shardwright_hub::{Settings, Wanted, Watch, fetch};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Where the model lies: its file or its first part.
pub(crate) fn model(wanted: &Wanted) -> anyhow::Result<PathBuf> {
    let screen = Screen::new(wanted);
    let path = fetch(&Settings::from_env()?, wanted, &screen)?;
    screen.end();
    log::debug!("{wanted} is {}", path.display());
    Ok(path)
}

/// A bar for each file that is under way and one for all, if a person is watching.
struct Screen<'a> {
    wanted: &'a Wanted,
    bars: MultiProgress,
    work: Mutex<Option<Work>>,
}

struct Work {
    started: Instant,
    missing: u64,
    all: ProgressBar,
    files: Vec<(ProgressBar, u64)>,
}

impl Screen<'_> {
    fn new(wanted: &Wanted) -> Screen<'_> {
        let quiet = !log::log_enabled!(log::Level::Info);
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        Screen { wanted, bars: MultiProgress::with_draw_target(target), work: Mutex::new(None) }
    }

    fn end(self) {
        let Some(work) = self.work.into_inner().unwrap_or_else(PoisonError::into_inner) else { return };
        work.all.finish_and_clear();
        let seconds = work.started.elapsed().as_secs_f64().max(1e-3);
        let speed = bytes((work.missing as f64 / seconds) as u64);
        log::info!("fetched {} in {seconds:.1} s, {speed}/s", bytes(work.missing));
    }
}

impl Watch for Screen<'_> {
    fn begin(&self, files: &[(&str, u64)], missing: u64) {
        let names = match files {
            [(name, _)] => (*name).to_owned(),
            _ => format!("{} files", files.len()),
        };
        log::info!("fetching {names} of {}, {}", self.wanted, bytes(missing));
        let bar = |(name, size): &(&str, u64)| {
            let style = ProgressStyle::with_template(
                "{msg} {wide_bar} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}",
            );
            let name = name.rsplit('/').next().unwrap_or_default().to_owned();
            ProgressBar::new(*size).with_style(style.expect("the template is constant")).with_message(name)
        };
        let sum = files.iter().fold(0u64, |sum, (_, size)| sum.saturating_add(*size));
        let all = self.bars.add(bar(&("all", sum)));
        let files = files.iter().map(|file| (bar(file), 0)).collect();
        let work = Work { started: Instant::now(), missing, all, files };
        *self.work.lock().unwrap_or_else(PoisonError::into_inner) = Some(work);
    }

    fn at(&self, file: usize, bytes: u64) {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(work) = work.as_mut() else { return };
        let (bar, before) = &mut work.files[file];
        if *before == 0 && bytes > 0 {
            *bar = self.bars.insert_before(&work.all, bar.clone());
        }
        bar.set_position(bytes);
        if Some(bytes) == bar.length() {
            bar.finish_and_clear();
        }
        // Less than before, if the file had to be begun anew.
        work.all.set_position((work.all.position() + bytes).saturating_sub(*before));
        *before = bytes;
    }

    fn note(&self, text: &str) {
        self.bars.suspend(|| log::warn!("{text}"));
    }
}
