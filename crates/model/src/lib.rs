//! Models described as data: what they compute, how they are cut over ranks, what they cost.
