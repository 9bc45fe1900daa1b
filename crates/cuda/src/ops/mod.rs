//! What each kind of op becomes: a file a kind, named as the CPU's.

pub(crate) mod attend_gqa;
pub(crate) mod attend_mla;
pub(crate) mod embed;
pub(crate) mod experts;
pub(crate) mod index;
pub(crate) mod linear;
pub(crate) mod norm;
pub(crate) mod pointwise;
pub(crate) mod rotate;
pub(crate) mod route;
pub(crate) mod shape;
pub(crate) mod softmax;
pub(crate) mod sum;
