//! Kernels that must compile for every architecture before a change is taken, at sizes that models have.

use crate::unit::Unit;

/// A kernel, and how it is launched.
#[derive(Clone, Debug)]
pub struct Case {
    /// The kernel.
    pub unit: Unit,
    /// Dynamic shared memory of a block, in bytes: the most that it is launched with.
    pub shared: u32,
}

/// Every kernel, each with all that changes its code.
pub fn units() -> Vec<Case> {
    vec![Case {
        unit: Unit::new("quantize").int("WIDTH", 6144).int("MAX_ROWS", 512).int("TABLE", 2048),
        shared: 0,
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::FILES;

    #[test]
    fn no_source_is_left_out() {
        let units = units();
        let kernels = FILES.iter().map(|(name, _)| *name).filter(|name| !name.starts_with("common/"));
        for kernel in kernels {
            assert!(units.iter().any(|case| case.unit.stem == kernel), "{kernel}");
        }
    }
}
