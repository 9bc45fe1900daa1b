//! The codebooks of the IQ types, expanded at compile time from `assets/grids.bin` (made by `assets/make_grids.py`).

/// Rows of six grids as packed value indices, u16, little-endian.
const PACKED: &[u8; 9216] = include_bytes!("../../assets/grids.bin");

const IQ2: [i8; 3] = [8, 25, 43];
const IQ3_LOW: [i8; 8] = [4, 12, 20, 28, 36, 44, 52, 62];
const IQ3_ODD: [i8; 8] = [1, 3, 5, 7, 9, 11, 13, 15];
const TERNARY: [i8; 3] = [-8, 0, 8];

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
/// Rows of IQ1_S and IQ1_M, of -1, 0 and 1 in eighths: the unit of what is added to them.
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

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    fn hex(bytes: &[u8]) -> String {
        Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn the_grids_have_their_digests() {
        let ternary = IQ1.map(|row| row.map(|v| v / 8));
        #[rustfmt::skip]
        let rows: [(usize, &[i8], &str, &str); 6] = [
            (256, IQ2_XXS.as_flattened(), "05826b5d3e472a3a78f196be62ac78acf81df0f909626e12ab9fa2a5d490dd54", "915952ebc4af8ddba8113583ca1316fc818843f7b825bbf1a25ae1c39bf0e16d"),
            (512, IQ2_XS.as_flattened(), "06e47aaca60b4dc1d9b5a3f34540437058a6b142b4d7a59d5ded769b4d1bf1de", "f66435966ca8d64e9e4a6e3c91e64afcf9015e700ec85962f527283ebae207b9"),
            (1024, IQ2_S.as_flattened(), "e1aa1473412b0552c2174c30ef22ab4073f6a181b85a17056e8249bd2932fd88", "e6e75e121b65e8afa5c1f92b71463cfbe217b83893f438acde22fd5db06a43f7"),
            (256, IQ3_XXS.as_flattened(), "46e35f5a997efdee6c99ce57854c8a0d4f0ff8ca57e5e8a60c0793ea580acf5d", "c9678803c61b2210fbd8cbbb3f965a835409cd7d88a04d086d236261bd221d11"),
            (512, IQ3_S.as_flattened(), "bd1af4945a1717c65610b0284e4628b9a1ba3b306fae3a06f6e5f597356e349f", "353274c58dd7d8dc5ee960dc8fc54ff9164eaf2b49206b841cd49415cf393f81"),
            (2048, ternary.as_flattened(), "07540ffc1aeaf6ad4d97e96b0fcc765aae39671d4ae4a27bbd0e796fde167c6a", "e9ffebfc997ad6023063a667c0bf4eedd8ebf7f56b3da399cbc7d1b1f7ea52c6"),
        ];
        let mut packed = &PACKED[..];
        for (n, values, of_values, of_packed) in rows {
            let (own, rest) = packed.split_at(2 * n);
            assert_eq!(hex(own), of_packed, "{n} packed rows, {} left after them", rest.len());
            assert_eq!(hex(bytemuck::cast_slice(values)), of_values, "{n} expanded rows");
            packed = rest;
        }
        assert!(packed.is_empty());
    }
}
