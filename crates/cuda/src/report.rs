//! What a step tells of itself besides its answers: which rows were not finite, and hashes of what all ranks must have in
//! common. It lies in one piece, so that it takes one way there and one back.

use crate::Result;
use crate::device::Device;

/// Where it lies: hashes by rank and point, then a number for each row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    address: u64,
    ranks: usize,
    points: usize,
}

/// What a step has told.
pub(crate) struct Told {
    /// For each row, the first op whose input was not finite.
    pub(crate) spoiled: Vec<i32>,
    /// By rank, if the step was watched.
    pub(crate) hashes: Vec<Vec<u64>>,
}

impl Report {
    /// Room for steps of at most `rows` rows.
    pub(crate) fn new(device: &mut dyn Device, [ranks, points, rows]: [usize; 3]) -> Result<Report> {
        let address = device.alloc(8 * ranks * points + 4 * rows)?;
        Ok(Report { address, ranks, points })
    }

    /// Where the hash of a rank's value goes.
    pub(crate) fn hash(&self, rank: usize, point: usize) -> u64 {
        self.address + 8 * (rank * self.points + point) as u64
    }

    /// Where the rows' numbers lie.
    pub(crate) fn spoiled(&self) -> u64 {
        self.hash(self.ranks, 0)
    }

    /// Where it begins, and how many words of hashes it has.
    fn from(&self, watched: bool) -> (u64, usize) {
        if watched { (self.address, 2 * self.ranks * self.points) } else { (self.spoiled(), 0) }
    }

    /// Nothing is known yet of a step of `rows` rows.
    pub(crate) fn clear(&self, device: &mut dyn Device, rows: usize, watched: bool) -> Result<()> {
        let (from, hashes) = self.from(watched);
        let mut words = vec![0; hashes];
        words.resize(hashes + rows, i32::MAX);
        device.upload(from, bytemuck::cast_slice(&words))
    }

    /// What the step has told, when it is done.
    pub(crate) fn read(&self, device: &mut dyn Device, rows: usize, watched: bool) -> Result<Told> {
        let (from, hashes) = self.from(watched);
        let mut words = vec![0i32; hashes + rows];
        device.download(from, bytemuck::cast_slice_mut(&mut words))?;
        let spoiled = words.split_off(hashes);
        let whole = |w: &[i32]| u64::from(w[0] as u32) | u64::from(w[1] as u32) << 32;
        let all: Vec<u64> = words.chunks_exact(2).map(whole).collect();
        let hashes = all.chunks(self.points.max(1)).map(<[u64]>::to_vec).collect();
        Ok(Told { spoiled, hashes })
    }
}
