//! What comes out of a reply: events while it streams, the message at its end.

/// A piece of the reply, as soon as it is certain. The pieces of a kind, joined, are the message's field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// More reasoning.
    Reasoning(String),
    /// More of the answer.
    Content(String),
    /// A call began and its name is known.
    CallStart {
        /// Its place among the reply's calls.
        index: usize,
        /// The model's own id, or a generated one.
        id: String,
        /// The name of the tool.
        name: String,
    },
    /// More of a call's arguments.
    CallArguments {
        /// Its place among the reply's calls.
        index: usize,
        /// More of the JSON text.
        delta: String,
    },
    /// A call is over. A call that the reply's end cut off has no such event.
    CallEnd {
        /// Its place among the reply's calls.
        index: usize,
    },
}

/// One tool call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The model's own id (`functions.NAME:IDX` of Kimi), or a generated one.
    pub id: String,
    /// The name of the tool, as the model wrote it.
    pub name: String,
    /// JSON text; of a call that was cut off, what there is of it.
    pub arguments: String,
    /// Whether the call was well-formed to its end and `arguments` is a JSON object.
    pub whole: bool,
}

/// Why the caller ends a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The model ended its turn.
    Turn,
    /// A token limit cut it.
    Limit,
}

/// How a reply ended, in the words of the OpenAI API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Finish {
    /// `stop`: the model's turn or a stop string ended it.
    #[default]
    Stop,
    /// `tool_calls`: it ended after at least one call.
    ToolCalls,
    /// `length`: a limit ended it, or its last call is unterminated.
    Length,
}

/// The whole reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// What the model thought before it answered.
    pub reasoning: String,
    /// The answer.
    pub content: String,
    /// The tool calls, in order.
    pub calls: Vec<Call>,
    /// How it ended.
    pub finish: Finish,
    /// The stop string that ended it, if one did.
    pub stop: Option<String>,
}
