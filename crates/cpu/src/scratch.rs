//! Working memory: of each thread, for one piece of a value; of each rank, for what lies between two values.
//!
//! A thread's memory is lent to closures that run no parallel work of their own: a thread that waited for such work
//! could take up another piece and ask for the same memory again.

use crate::simd::Sixteen;
use std::cell::RefCell;

thread_local! {
    static FLOATS: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
    static DECODED: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
    static VECTORS: RefCell<Vec<Sixteen>> = const { RefCell::new(Vec::new()) };
    static DOUBLES: RefCell<Vec<f64>> = const { RefCell::new(Vec::new()) };
}

/// Lends `len` numbers of this thread, of any value.
pub(crate) fn floats<R>(len: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    FLOATS.with_borrow_mut(|v| work(sized(v, len)))
}

/// The same for decoded weights, which may be used while [`floats`] are.
pub(crate) fn decoded<R>(len: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    DECODED.with_borrow_mut(|v| work(sized(v, len)))
}

/// Lends `len` numbers of this thread, of any value.
pub(crate) fn doubles<R>(len: usize, work: impl FnOnce(&mut [f64]) -> R) -> R {
    DOUBLES.with_borrow_mut(|v| work(sized(v, len)))
}

/// Lends memory for vectors of this thread, to be used while [`floats`] are.
pub(crate) fn vectors<R>(work: impl FnOnce(&mut Vec<Sixteen>) -> R) -> R {
    VECTORS.with_borrow_mut(work)
}

/// The first `len` elements, more of them if need be.
pub(crate) fn sized<T: Default + Clone>(v: &mut Vec<T>, len: usize) -> &mut [T] {
    if v.len() < len {
        v.resize(len, T::default());
    }
    &mut v[..len]
}

/// Working memory of a rank.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) product: crate::product::Buffers,
    pub(crate) route: Vec<f32>,
    pub(crate) experts: crate::ops::experts::Buffers,
    pub(crate) linear: crate::fast::linear::Buffers,
    pub(crate) fast_experts: crate::fast::experts::Buffers,
    pub(crate) heads: Vec<f32>,
    pub(crate) scores: Vec<Sixteen>,
    /// The outputs of the op that is being run.
    pub(crate) outputs: Vec<Vec<f32>>,
}
