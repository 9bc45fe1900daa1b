//! One request to a server that speaks OpenAI's chat API, and when each piece of its answer came.

use super::sse::Events;
use anyhow::{Context, anyhow, bail};
use serde_json::{Value, json};
use shardwright_hub::connection;
use std::io::Read;
use std::time::{Duration, Instant};
use ureq::http::{Response, Uri};
use ureq::{Agent, Body};

const CONNECT: Duration = Duration::from_secs(10);
/// Bytes of an error, or of the list of models.
const PLAIN: u64 = 1 << 20;

/// Asks one server.
pub(super) struct Client {
    agent: Agent,
    base: String,
    key: Option<String>,
    model: String,
    manners: Manners,
}

/// What not every server understands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Manners {
    /// Answers can be made to go on to their last token.
    pub(super) ignore_eos: bool,
    /// The last piece may be asked to tell the tokens.
    pub(super) usage: bool,
}

/// What is asked.
pub(super) struct Ask {
    pub(super) prompt: String,
    /// Of the answer, at most.
    pub(super) tokens: u32,
}

/// When things happened.
pub(super) struct Answer {
    pub(super) sent: Instant,
    /// Pieces with text.
    pub(super) pieces: Vec<Instant>,
    pub(super) usage: Option<Usage>,
}

/// Tokens as the server counts them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Usage {
    pub(super) prompt: u64,
    pub(super) cached: Option<u64>,
    pub(super) answer: u64,
}

impl Answer {
    /// The server's count, else the number of pieces.
    pub(super) fn tokens(&self) -> u64 {
        self.usage.map_or(self.pieces.len() as u64, |usage| usage.answer)
    }
}

impl Client {
    /// A client of the server at `url`, with or without `/v1` at its end. Asks it for its models if none is named, and finds
    /// out its manners.
    pub(super) fn new(
        url: &str,
        key: Option<&str>,
        model: Option<&str>,
        silence: Duration,
    ) -> anyhow::Result<Client> {
        let base = url.trim_end_matches('/');
        let base = if base.ends_with("/v1") { base.to_owned() } else { format!("{base}/v1") };
        let uri = base.parse::<Uri>().ok().filter(|u| matches!(u.scheme_str(), Some("http" | "https")));
        let uri = uri.ok_or_else(|| {
            anyhow!("`{url}` is no address of a server; it looks like http://localhost:8080")
        })?;
        let secure = uri.scheme_str() == Some("https");
        let config = connection(uri.host().unwrap_or_default(), secure)?
            .max_idle_connections(0)
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(silence))
            .timeout_per_read(Some(silence))
            .build();
        if key.is_some_and(|key| !key.bytes().all(|b| b.is_ascii_graphic())) {
            bail!("the API key holds characters that no key has");
        }
        let manners = Manners { ignore_eos: true, usage: true };
        let key = key.map(str::to_owned);
        let mut client = Client { agent: config.new_agent(), base, key, model: String::new(), manners };
        client.model = match model {
            Some(name) => name.to_owned(),
            None => client.first_model()?,
        };
        client.learn()?;
        Ok(client)
    }

    /// The model that is asked.
    pub(super) fn model(&self) -> &str {
        &self.model
    }

    /// What the server understands.
    pub(super) fn manners(&self) -> Manners {
        self.manners
    }

    fn first_model(&self) -> anyhow::Result<String> {
        let url = format!("{}/models", self.base);
        let mut request = self.agent.get(&url);
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let response = request.call().map_err(failed).with_context(|| url.clone())?;
        let (status, body) = plain(response);
        if status != 200 {
            return Err(refused(status, &body).context(url));
        }
        let list: Value = serde_json::from_str(&body)
            .map_err(|_| anyhow!("{url}: that is no JSON; is there a server with OpenAI's API?"))?;
        let name = list["data"][0]["id"].as_str();
        name.map(str::to_owned).ok_or_else(|| anyhow!("{url}: no model is listed; name one with --model"))
    }

    /// Asks for one token, with less and less that the server may not know.
    fn learn(&mut self) -> anyhow::Result<()> {
        let ask = Ask { prompt: "Hello".into(), tokens: 1 };
        let tries = [(true, true), (false, true), (false, false)];
        let mut first = None;
        for (ignore_eos, usage) in tries {
            self.manners = Manners { ignore_eos, usage };
            match self.send(&ask)? {
                Ok(response) => {
                    self.watch(response, Instant::now())?;
                    return Ok(());
                }
                Err((status, why)) => {
                    let why = first.get_or_insert(why);
                    if ![400, 422].contains(&status) {
                        return Err(anyhow!("{}: {why}", self.base));
                    }
                }
            }
        }
        Err(anyhow!("{}: {}", self.base, first.map_or(String::new(), |why| why.to_string())))
    }

    /// Asks, and follows the answer to its end.
    ///
    /// # Errors
    /// In words that are the same for all failures of a kind, so that these can be counted.
    pub(super) fn ask(&self, ask: &Ask) -> anyhow::Result<Answer> {
        let sent = Instant::now();
        let response = self.send(ask)?.map_err(|(_, why)| why)?;
        self.watch(response, sent)
    }

    fn send(&self, ask: &Ask) -> anyhow::Result<Result<Response<Body>, (u16, anyhow::Error)>> {
        let mut body = json!({
            "model": self.model,
            "messages": [{ "role": "user", "content": ask.prompt }],
            "max_tokens": ask.tokens,
            "temperature": 0,
            "stream": true,
        });
        if self.manners.usage {
            body["stream_options"] = json!({ "include_usage": true });
        }
        if self.manners.ignore_eos {
            body["ignore_eos"] = true.into();
        }
        let mut request = self.agent.post(format!("{}/chat/completions", self.base));
        request = request.header("content-type", "application/json").header("accept", "text/event-stream");
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let response = request.send(body.to_string()).map_err(failed)?;
        if response.status().as_u16() == 200 {
            return Ok(Ok(response));
        }
        let (status, body) = plain(response);
        Ok(Err((status, refused(status, &body))))
    }

    fn watch(&self, response: Response<Body>, sent: Instant) -> anyhow::Result<Answer> {
        let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok());
        if !kind.unwrap_or_default().starts_with("text/event-stream") {
            bail!("the server did not stream its answer, but sent {}", kind.unwrap_or("something unnamed"));
        }
        let mut answer = Answer { sent, pieces: Vec::new(), usage: None };
        let mut ended = false;
        for data in Events::new(response.into_body().into_reader()) {
            let data = data.map_err(|e| failed(e.into()))?;
            if data == "[DONE]" {
                ended = true;
                break;
            }
            let event: Value = serde_json::from_str(&data).context("a piece of the answer is no JSON")?;
            ended |= answer.take(&event, Instant::now())?;
        }
        match (ended, answer.tokens()) {
            (false, _) => bail!("the stream was cut before the answer's end"),
            (true, 0) => bail!("the answer is empty"),
            (true, _) => Ok(answer),
        }
    }
}

impl Answer {
    /// Notes a piece; whether it was the last one of the text.
    fn take(&mut self, event: &Value, now: Instant) -> anyhow::Result<bool> {
        if let Some(why) = event.get("error").filter(|why| !why.is_null()) {
            bail!("an error ended the stream: {}", message(why));
        }
        let choice = &event["choices"][0];
        let delta = &choice["delta"];
        let says = |name: &str| delta[name].as_str().is_some_and(|text| !text.is_empty());
        let calls = delta["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty());
        if calls || ["content", "reasoning_content", "reasoning"].into_iter().any(says) {
            self.pieces.push(now);
        }
        let usage = &event["usage"];
        if let (Some(prompt), Some(tokens)) =
            (usage["prompt_tokens"].as_u64(), usage["completion_tokens"].as_u64())
        {
            let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64();
            self.usage = Some(Usage { prompt, cached, answer: tokens });
        }
        Ok(choice["finish_reason"].is_string())
    }
}

fn plain(response: Response<Body>) -> (u16, String) {
    let status = response.status().as_u16();
    let mut body = Vec::new();
    // What of it came is enough to say what is wrong.
    let _ = response.into_body().into_reader().take(PLAIN).read_to_end(&mut body);
    (status, String::from_utf8_lossy(&body).into_owned())
}

/// What a status means, with what the server says of it.
fn refused(status: u16, body: &str) -> anyhow::Error {
    let said = serde_json::from_str::<Value>(body).map_or_else(|_| short(body), |value| message(&value));
    let hint = match status {
        300..=399 => "; give the address that it leads to",
        401 | 403 => "; give the right --api-key",
        404 => "; does --url name a server with OpenAI's API, and --model one of its models?",
        _ => "",
    };
    anyhow!("the server answers with status {status}: {said}{hint}")
}

/// The text in any of the forms that servers give to errors.
fn message(value: &Value) -> String {
    let places = ["/error/message", "/message", "/error", "/detail"];
    let found = places.iter().find_map(|place| value.pointer(place)?.as_str());
    short(found.map_or_else(|| value.to_string(), str::to_owned).as_str())
}

fn short(text: &str) -> String {
    let text: String = text.trim().chars().take(200).collect();
    if text.is_empty() { "nothing more".into() } else { text }
}

/// Failures below HTTP.
fn failed(e: ureq::Error) -> anyhow::Error {
    use std::io::ErrorKind::{ConnectionReset, UnexpectedEof};
    match e {
        ureq::Error::Timeout(_) => anyhow!("the server sent nothing for too long (--timeout)"),
        ureq::Error::Io(e) if [ConnectionReset, UnexpectedEof].contains(&e.kind()) => {
            anyhow!("the stream was cut before the answer's end")
        }
        e => anyhow!("no connection to the server: {e}"),
    }
}
