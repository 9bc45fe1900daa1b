//! Pipeline stages in processes of their own: stage 0 speaks to the user, the others run their layers for it.
//!
//! Each later stage holds one connection, to stage 0, which hands everybody's rows on. Whatever ends one of them ends all,
//! with the reason.

mod frame;
mod identity;
mod launch;
mod lead;
mod link;
mod message;
mod remote;
mod work;

pub(crate) use launch::{Place, StageArgs};
pub(crate) use lead::lead;
pub(crate) use work::work;

use std::time::Duration;

/// How long stages wait for each other to be started.
const PATIENCE: Duration = Duration::from_secs(300);
