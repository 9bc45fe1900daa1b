//! The kernel compiler, for tests that need it.

use shardwright_cuda::nvrtc::Nvrtc;

/// None where there is none, which is said; a failure if there must be one.
pub(crate) fn nvrtc() -> Option<Nvrtc> {
    match Nvrtc::find() {
        Ok(nvrtc) => Some(nvrtc),
        Err(why) if std::env::var_os("SHARDWRIGHT_REQUIRE_NVRTC").is_none() => {
            eprintln!("SKIPPED: {why}");
            None
        }
        Err(why) => panic!("SHARDWRIGHT_REQUIRE_NVRTC is set, and {why}"),
    }
}
