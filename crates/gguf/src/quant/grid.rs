//! The codebooks of the IQ types, expanded at compile time from `assets/grids.bin` (made by `assets/make_grids.py`).

/// Rows of six grids as packed value indices, u16, little-endian.
const PACKED: &[u8; 9216] = include_bytes!("../../assets/grids.bin");

const IQ2: [i8; 3] = [8, 25, 43];
const IQ3_LOW: [i8; 8] = [4, 12, 20, 28, 36, 44, 52, 62];
const IQ3_ODD: [i8; 8] = [1, 3, 5, 7, 9, 11, 13, 15];
const TERNARY: [i8; 3] = [-1, 0, 1];

/// Rows of IQ2_XXS.
pub(super) static IQ2_XXS: [[i8; 8]; 256] = expand(0, &IQ2);
/// Rows of IQ2_XS.
pub(super) static IQ2_XS: [[i8; 8]; 512] = expand(256, &IQ2);
/// Rows of IQ2_S.
pub(super) static IQ2_S: [[i8; 8]; 1024] = expand(768, &IQ2);
/// Rows of IQ3_XXS.
pub(super) static IQ3_XXS: [[i8; 4]; 256] = expand(1792, &IQ3_LOW);
/// Rows of IQ3_S.
pub(super) static IQ3_S: [[i8; 4]; 512] = expand(2048, &IQ3_ODD);
/// Rows of IQ1_S and IQ1_M.
pub(super) static IQ1: [[i8; 8]; 2048] = expand(2560, &TERNARY);

/// The rows from number `first` of the asset on: 16 bits hold the value indices of a row, element 0 lowest (two bits
/// for each of 8 elements, or three for each of 4).
const fn expand<const ROWS: usize, const WIDTH: usize>(first: usize, values: &[i8]) -> [[i8; WIDTH]; ROWS] {
    let bits = if WIDTH == 8 { 2 } else { 3 };
    let mut rows = [[0; WIDTH]; ROWS];
    let mut r = 0;
    while r < ROWS {
        let at = 2 * (first + r);
        let packed = u16::from_le_bytes([PACKED[at], PACKED[at + 1]]) as usize;
        let mut k = 0;
        while k < WIDTH {
            rows[r][k] = values[(packed >> (bits * k)) & ((1 << bits) - 1)];
            k += 1;
        }
        r += 1;
    }
    rows
}
