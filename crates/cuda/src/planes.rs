//! How a row of blocks lies on a device: field by field instead of block by block, so that lanes of a warp read 16 bytes each, one
//! behind the other. A file's blocks have 34, 144, 176 or 210 bytes, of which a lane would read words at odd places. The
//! bytes are the same, as many, and a row begins where it did; `kernels/common/quant` has the other half.

use shardwright_gguf::QuantType;

use crate::unit::Unit;

/// A row's bytes must be a multiple of this, so that every row begins where a wide load may.
const WIDE: usize = 16;

/// The fields of a type's blocks, by their place in a block and their bytes, in the order of their planes; none if such rows lie as
/// they are.
pub(crate) fn fields(quant: QuantType) -> &'static [(usize, usize)] {
    match quant {
        QuantType::Q8_0 => &[(2, 32), (0, 2)],
        QuantType::Q4_K => &[(16, 128), (0, 16)],
        QuantType::Q5_K => &[(48, 128), (16, 32), (0, 16)],
        QuantType::Q6_K => &[(0, 128), (128, 64), (192, 16), (208, 2)],
        _ => &[],
    }
}

/// Is a row of so many bytes one of planes?
pub(crate) fn is_planes(quant: QuantType, row_bytes: usize) -> bool {
    !fields(quant).is_empty() && row_bytes.is_multiple_of(WIDE)
}

/// A kernel (`lay`, `held`) for rows of this type in planes; of none for rows that lie as they are.
pub fn unit(stem: &'static str, quant: Option<QuantType>) -> Unit {
    let fields = quant.map_or(&[][..], fields);
    let fields = fields.iter().map(|(at, len)| format!("FIELD({at}, {len})")).collect::<Vec<_>>();
    Unit::new(stem).int("BYTES", quant.map_or(0, QuantType::block_bytes)).int("FIELDS", fields.join(" "))
}

/// Most warps that share a row, and turns of a lane that are enough for each.
const MOST_SLICES: usize = 8;
const ENOUGH_TURNS: usize = 4;

/// Lanes that take a row's units in turn (`kernels/common/piece.cuh`), and warps of them. By the row alone, so that its sum does
/// not depend on what lies beside it.
pub(crate) fn lanes_and_slices(
    quant: QuantType,
    row_bytes: usize,
    cols: usize,
    fast: bool,
) -> (usize, usize) {
    let units = match quant.group() {
        Some(_) if fast && is_planes(quant, row_bytes) => {
            cols / if quant == QuantType::Q8_0 { 16 } else { 32 }
        }
        Some(_) => cols / 32,
        None if cols.is_multiple_of(128) => cols / 4,
        None => cols,
    };
    let lanes = [4, 8, 16].into_iter().find(|n| units <= *n).unwrap_or(32);
    let turns = |slices: usize| units.div_ceil(32 * slices);
    let mut slices = 1;
    while slices < MOST_SLICES && turns(slices) > ENOUGH_TURNS {
        slices *= 2;
    }
    // half as many if that leaves a tenth fewer lanes idle
    while slices > 1 && 10 * turns(slices / 2) * (slices / 2) < 9 * turns(slices) * slices {
        slices /= 2;
    }
    (lanes, slices)
}

/// Appends a row as it lies on a device; `kernels/lay.cu` does the same with what comes from a file.
pub fn lay(quant: QuantType, row: &[u8], to: &mut Vec<u8>) {
    if !is_planes(quant, row.len()) {
        return to.extend_from_slice(row);
    }
    for &(at, len) in fields(quant) {
        let blocks = row.chunks_exact(quant.block_bytes());
        match len {
            // lengths that the compiler knows are copied without calls
            2 => blocks.for_each(|b| to.extend_from_slice(&b[at..at + 2])),
            16 => blocks.for_each(|b| to.extend_from_slice(&b[at..at + 16])),
            32 => blocks.for_each(|b| to.extend_from_slice(&b[at..at + 32])),
            _ => blocks.for_each(|b| to.extend_from_slice(&b[at..at + len])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_all_of_a_block() {
        for &quant in QuantType::ALL {
            let mut fields = fields(quant).to_vec();
            fields.sort_unstable();
            let end = fields.iter().fold(0, |end, (at, len)| {
                assert_eq!(*at, end, "{quant}");
                end + len
            });
            assert!(fields.is_empty() || end == quant.block_bytes(), "{quant}");
        }
    }

    #[test]
    fn a_row_keeps_its_bytes() {
        let quant = QuantType::Q8_0;
        let row: Vec<u8> = (0..8 * 34).map(|i| i as u8).collect();
        let mut laid = vec![7];
        lay(quant, &row, &mut laid);
        assert_eq!(laid.len(), 1 + row.len());
        assert_eq!(laid[1..33], row[2..34]);
        assert_eq!(laid[33..65], row[36..68]);
        assert_eq!(laid[1 + 8 * 32..][..4], [0, 1, 34, 35]);
        // of seven blocks, rows would begin at odd places
        let mut as_it_is = vec![];
        lay(quant, &row[..7 * 34], &mut as_it_is);
        assert_eq!(as_it_is, row[..7 * 34]);
    }
}
