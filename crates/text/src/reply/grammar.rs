//! What a syntax must bring: the part of a reader that understands its calls.

use std::fmt::Debug;

use super::output::Output;

/// Reads the calls of one syntax. The reader cuts the reply at the marks that are legal at the moment.
///
/// None of the legal marks may be the beginning of another.
pub(super) trait Grammar: Debug + Send {
    /// Whether the reply is inside a call or a section of calls.
    fn busy(&self) -> bool;

    /// The marks legal now; when not busy, those that begin a call or a section.
    fn marks(&self) -> Vec<&'static str>;

    /// A legal mark came: as one token if `by_id`, otherwise spelled.
    fn mark(&mut self, mark: &'static str, by_id: bool, out: &mut Output);

    /// Text came between marks, in any portions. Only called when busy.
    fn text(&mut self, text: &str, out: &mut Output);

    /// The model ended its turn while busy: finish the call if nothing but its end is missing, or
    /// [`Output::reject`] it if it never became one.
    fn end(&mut self, out: &mut Output);
}
