//! Elements moved, none computed.

use crate::lower::Lower;
use crate::program::Slot;

pub(crate) fn concat(l: &mut Lower<'_>) {
    let widths = [0, 1].map(|i| l.local().inputs[i].width);
    let mut to = 0;
    for (i, width) in widths.into_iter().enumerate() {
        moved(l, i, [1, width, 0, width], [widths[0] + widths[1], to]);
        to += width;
    }
}

pub(crate) fn part(l: &mut Lower<'_>, unit: usize, start: usize, len: usize) {
    let runs = l.local().inputs[0].width / unit;
    moved(l, 0, [runs, unit, start, len], [len, 0]);
}

fn moved(l: &mut Lower<'_>, input: usize, [runs, unit, from, len]: [usize; 4], [out_unit, to]: [usize; 2]) {
    let kernel = l.unit("shape").int("RUNS", runs).int("UNIT", unit).int("FROM", from).int("LEN", len);
    let kernel = kernel.int("OUT_UNIT", out_unit).int("TO", to);
    l.along(kernel, runs * len, 256, vec![Slot::Step, l.input(input), l.output(0)]);
}
