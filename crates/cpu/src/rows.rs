//! Values as rows of f32.

/// A value: `count` rows of `width` elements, one behind the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows<'a> {
    data: &'a [f32],
    pub(crate) width: usize,
    pub(crate) count: usize,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(data: &'a [f32], width: usize, count: usize) -> Rows<'a> {
        Rows { data: &data[..width * count], width, count }
    }

    pub(crate) fn row(self, i: usize) -> &'a [f32] {
        &self.data[i * self.width..][..self.width]
    }

    /// `count` rows from `first` on.
    pub(crate) fn part(self, first: usize, count: usize) -> Rows<'a> {
        Rows::new(&self.data[first * self.width..], self.width, count)
    }

    pub(crate) fn all(self) -> &'a [f32] {
        self.data
    }
}
