//! A rank's memory for sums over devices: its inbox, where its part of the others' lies, and how long it waits for them.

use std::time::Duration;

use crate::Result;
use crate::device::Device;

/// Bytes of a packet.
const PACKET: u64 = 16;

/// Words of what a kernel tells: that it has given up, at which op, and a bit for each peer that has not come.
const TOLD: usize = 3;

/// Where it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    rank: usize,
    ranks: usize,
    /// Bytes of a sender's part of an inbox.
    part: u64,
    inbox: u64,
    /// For each slot the addresses of this rank's part of the others' inboxes.
    peers: [u64; 2],
    wait: u64,
    told: u64,
}

/// Peers that have not come in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Late {
    pub(crate) op: usize,
    pub(crate) ranks: Vec<usize>,
}

impl Exchange {
    /// Of this rank, with room for so many packets of each peer.
    pub(crate) fn new(
        device: &mut dyn Device,
        [rank, ranks]: [usize; 2],
        packets: usize,
    ) -> Result<Exchange> {
        let part = packets as u64 * PACKET;
        let inbox = device.inbox(2 * ranks * part as usize)?;
        let list = |device: &mut dyn Device| device.alloc(8 * ranks);
        let peers = [list(device)?, list(device)?];
        let (wait, told) = (device.alloc(24)?, device.pinned(4 * TOLD)?);
        Ok(Exchange { rank, ranks, part, inbox, peers, wait, told })
    }

    /// Its inbox: two slots, in each a part for each rank.
    pub(crate) fn inbox(&self, slot: usize) -> u64 {
        self.part_of(self.inbox, slot, 0)
    }

    pub(crate) fn peers(&self, slot: usize) -> u64 {
        self.peers[slot]
    }

    pub(crate) fn wait(&self) -> u64 {
        self.wait
    }

    fn part_of(&self, inbox: u64, slot: usize, rank: usize) -> u64 {
        inbox + (slot * self.ranks + rank) as u64 * self.part
    }

    /// Learns where everybody's inbox lies.
    pub(crate) fn meet(&self, device: &mut dyn Device, inboxes: &[u64]) -> Result<()> {
        for slot in 0..2 {
            let others = (1..self.ranks).map(|i| inboxes[(self.rank + i) % self.ranks]);
            let list: Vec<u64> = others.map(|inbox| self.part_of(inbox, slot, self.rank)).collect();
            device.upload(self.peers[slot], bytemuck::cast_slice(&list))?;
        }
        Ok(())
    }

    /// From now on kernels wait so long.
    pub(crate) fn patience(&self, device: &mut dyn Device, patience: Duration) -> Result<()> {
        let nanoseconds = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
        device.upload(self.wait, bytemuck::cast_slice(&[nanoseconds, self.told, self.rank as u64]))
    }

    /// Who has not come, if a kernel has given up.
    pub(crate) fn late(&self, device: &dyn Device) -> Option<Late> {
        let mut told = [0; TOLD];
        device.glance(self.told, &mut told);
        let [given_up, op, missing] = told;
        let ranks = (0..self.ranks).filter(|rank| missing >> rank & 1 == 1).collect();
        (given_up == 1).then_some(Late { op: op as usize, ranks })
    }
}
