// The server's API: one streamed answer, and small questions.

/** What went wrong, in words for the user. */
export class Refused extends Error {
  constructor(message, status) { super(message); this.status = status; }
}

function headers(key) {
  return key ? { authorization: `Bearer ${key}` } : {};
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new Refused("The server cannot be reached.", 0);
  }
  if (response.ok) return response;
  const body = await response.text();
  let why = body.slice(0, 300) || response.statusText;
  try {
    const said = JSON.parse(body);
    why = said.error?.message ?? said.message ?? why;
  } catch { /* no JSON: the text itself */ }
  const wait = response.headers.get("retry-after");
  throw new Refused(String(why) + (wait ? ` Try again in ${wait} s.` : ""), response.status);
}

export async function getJson(path, key) { return (await ask(path, { headers: headers(key) })).json(); }

export async function getText(path, key) { return (await ask(path, { headers: headers(key) })).text(); }

/** The pieces of a streamed answer. */
export async function* chat(body, key, signal) {
  const response = await ask("/v1/chat/completions", {
    method: "POST", signal, headers: { "content-type": "application/json", ...headers(key) }, body: JSON.stringify(body),
  });
  let ended = false;
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return;
    const piece = JSON.parse(data);
    if (piece.error) throw new Refused(String(piece.error.message ?? "The answer failed."), 500);
    ended ||= Boolean(piece.choices?.[0]?.finish_reason);
    yield piece;
  }
  if (!ended) throw new Refused("The connection was cut before the answer's end.", 0);
}

/** The data of server-sent events. */
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", data = [];
  for (;;) {
    const { value, done } = await reader.read();
    const lines = (rest + (value ?? "")).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
      else if (line === "" && data.length) yield data.splice(0).join("\n");
    }
    if (done) {
      if (data.length) yield data.join("\n");
      return;
    }
  }
}

/** The request for an answer to these messages. */
export function request(settings, messages) {
  const body = { model: settings.model || undefined, messages: [], stream: true, stream_options: { include_usage: true } };
  if (settings.system.trim()) body.messages.push({ role: "system", content: settings.system });
  for (const m of messages) body.messages.push(message(m));
  for (const name of ["temperature", "top_p", "max_tokens"]) {
    if (settings[name].trim() !== "") body[name] = Number(settings[name]);
  }
  if (settings.thinking) body.chat_template_kwargs = { enable_thinking: settings.thinking === "on" };
  if (settings.tools.trim()) body.tools = JSON.parse(settings.tools);
  return body;
}

function message(m) {
  if (m.role === "tool") return { role: "tool", tool_call_id: m.call, content: m.content };
  if (m.role === "user") return { role: "user", content: m.content };
  const out = { role: "assistant", content: m.content };
  if (m.reasoning) out.reasoning_content = m.reasoning;
  if (m.calls.length) {
    out.tool_calls = m.calls.map((c) => ({ id: c.id, type: "function", function: { name: c.name, arguments: c.arguments || "{}" } }));
  }
  return out;
}
