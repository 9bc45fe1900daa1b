//! One file a kind of op: plain loops, the definition of what the kind computes.

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
