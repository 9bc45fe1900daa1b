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

/// What a step has told. Its memory serves the next one.
#[derive(Default)]
pub(crate) struct Told {
    /// As it lies on the device: hashes, then the rows' numbers.
    words: Vec<i32>,
    /// Words of hashes.
    hashes: usize,
    /// Hashes of a rank.
    points: usize,
}

impl Told {
    /// For each row, the first op whose input was not finite.
    pub(crate) fn spoiled(&self) -> &[i32] {
        &self.words[self.hashes..]
    }

    /// By rank, if the step was watched.
    pub(crate) fn hashes(&self) -> impl Iterator<Item = Vec<u64>> {
        let whole = |w: &[i32]| u64::from(w[0] as u32) | u64::from(w[1] as u32) << 32;
        let ranks = self.words[..self.hashes].chunks(2 * self.points.max(1));
        ranks.map(move |rank| rank.chunks_exact(2).map(whole).collect())
    }
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
    pub(crate) fn clear(
        &self,
        device: &mut dyn Device,
        rows: usize,
        watched: bool,
        told: &mut Told,
    ) -> Result<()> {
        let (from, hashes) = self.from(watched);
        (told.hashes, told.points) = (hashes, self.points);
        told.words.clear();
        told.words.resize(hashes, 0);
        told.words.resize(hashes + rows, i32::MAX);
        device.upload(from, bytemuck::cast_slice(&told.words))
    }

    /// What the step has told, when it is done.
    pub(crate) fn read(&self, device: &mut dyn Device, watched: bool, told: &mut Told) -> Result<()> {
        device.download(self.from(watched).0, bytemuck::cast_slice_mut(&mut told.words))
    }
}
