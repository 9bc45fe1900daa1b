// The page: a conversation, its settings, and the engine beside it.

import { chat, getJson, request } from "./api.js";
import { watch } from "./panel.js";
import { DEFAULTS, conversation, keepConversation, keepSettings, settings as kept } from "./store.js";
import { finish, update, view } from "./view.js";

const at = (id) => document.getElementById(id);
const [log, scroll, prompt, dialog, models] = ["log", "scroll", "prompt", "settings", "model"].map(at);
let settings = kept();
let messages = conversation();
/** Stops the running answer; null if none runs. */
let running = null;

// The conversation

function showAll() {
  at("welcome").hidden = messages.length > 0;
  log.replaceChildren(...messages.map((message, i) => view(message, actions(i))));
  toEnd();
}

function actions(i) {
  const message = messages[i], isLast = i === messages.length - 1;
  return {
    edit: (text) => { if (!running) { messages.length = i; say(text); } },
    regenerate: message.role === "assistant" && isLast ? () => { if (!running) { messages.length = i; answer(); } } : null,
    answer: isLast ? (results) => giveBack(message, results) : null,
  };
}

function say(text) {
  messages.push({ role: "user", content: text });
  answer();
}

function giveBack(message, results) {
  if (running) return;
  message.calls.forEach((call, i) => messages.push({ role: "tool", call: call.id, content: results[i] }));
  answer();
}

async function answer() {
  const message = { role: "assistant", content: "", reasoning: "", calls: [], note: "", facts: "" };
  const stop = new AbortController();
  const asked = messages.slice();
  messages.push(message);
  running = stop;
  showAll();
  keepConversation(asked);
  busy(true);
  const node = log.lastElementChild;
  node.lastElementChild.replaceChildren();
  const paint = painter(() => { update(node, message, true); follow(); });
  paint();
  const clock = { begun: performance.now() };
  try {
    for await (const piece of chat(request(settings, asked), settings.key, stop.signal)) {
      take(message, piece, clock);
      paint();
    }
    status("The answer is complete.");
  } catch (e) {
    message.note = e.name === "AbortError" ? "Stopped." : e.message;
    status(message.note);
    if (e.status === 401) openSettings("This server wants an API key.", "key");
  }
  paint.cancel();
  running = null;
  busy(false);
  // A new conversation may have begun meanwhile.
  if (messages.at(-1) !== message) return;
  message.facts = facts(message, clock);
  update(node, message, false);
  finish(node, message, actions(messages.length - 1));
  keepConversation(messages);
  follow();
}

/** Adds a piece of the stream to the message. */
function take(message, piece, clock) {
  if (piece.usage) clock.usage = piece.usage;
  const choice = piece.choices?.[0];
  const delta = choice?.delta ?? {};
  const thought = delta.reasoning_content ?? delta.reasoning;
  if (delta.content || thought || delta.tool_calls) {
    clock.first ??= performance.now();
    clock.last = performance.now();
    clock.pieces = (clock.pieces ?? 0) + 1;
  }
  message.content += delta.content ?? "";
  message.reasoning += thought ?? "";
  for (const call of delta.tool_calls ?? []) {
    const mine = (message.calls[call.index] ??= { id: "", name: "", arguments: "" });
    mine.id ||= call.id ?? "";
    mine.name += call.function?.name ?? "";
    mine.arguments += call.function?.arguments ?? "";
  }
  if (choice?.finish_reason === "length") message.note = "The answer was cut: it reached the limit of tokens.";
}

/** Tokens and speed, for the line below an answer. */
function facts(message, { begun, first, last, pieces, usage }) {
  if (first === undefined) return "";
  const tokens = usage?.completion_tokens ?? pieces, seconds = (last - first) / 1000;
  const facts = [`${tokens} ${usage ? "tokens" : "pieces"}`];
  if (tokens > 1 && seconds > 0) facts.push(`${((tokens - 1) / seconds).toFixed(1)} a second`);
  facts.push(`first after ${((first - begun) / 1000).toFixed(2)} s`);
  const cached = usage?.prompt_tokens_details?.cached_tokens;
  if (cached) facts.push(`${cached} of ${usage.prompt_tokens} of the prompt from the cache`);
  return facts.join(" · ");
}

/** At most once a frame, and never a second time for nothing. */
function painter(paint) {
  let frame = 0;
  const wanted = () => { frame ||= requestAnimationFrame(() => { frame = 0; paint(); }); };
  wanted.cancel = () => cancelAnimationFrame(frame);
  return wanted;
}

// What surrounds it

function busy(is) {
  const focused = [at("send"), at("stop")].includes(document.activeElement);
  at("send").hidden = is;
  at("stop").hidden = !is;
  if (is) status("The model answers.");
  if (focused) prompt.focus();
}

function status(text) { at("status").textContent = text; }

let follows = true;
const distance = () => scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight;
function toEnd() { scroll.scrollTop = scroll.scrollHeight; follows = true; at("latest").hidden = true; }
function follow() { if (follows) scroll.scrollTop = scroll.scrollHeight; else at("latest").hidden = distance() < 80; }
scroll.addEventListener("scroll", () => { follows = distance() < 80; if (follows) at("latest").hidden = true; });
at("latest").addEventListener("click", () => { toEnd(); prompt.focus(); });

function grow() {
  prompt.style.height = "auto";
  prompt.style.height = `${Math.min(prompt.scrollHeight, 240)}px`;
}

function submit() {
  const text = prompt.value;
  if (running || !text.trim()) return;
  prompt.value = "";
  grow();
  say(text);
}

prompt.addEventListener("input", grow);
prompt.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); submit(); }
});
at("composer").addEventListener("submit", (event) => { event.preventDefault(); submit(); });
at("stop").addEventListener("click", () => running?.abort());
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !dialog.open && !event.isComposing) running?.abort();
});
for (const starter of at("starters").children) starter.addEventListener("click", () => { if (!running) say(starter.textContent); prompt.focus(); });
at("new").addEventListener("click", () => {
  running?.abort();
  messages = [];
  keepConversation(messages);
  showAll();
  prompt.focus();
});

// Settings

const form = dialog.querySelector("form");
const named = Object.keys(DEFAULTS).filter((name) => form.elements[name]);

function openSettings(why = "", focus = "system") {
  for (const name of named) form.elements[name].value = settings[name];
  at("settings-error").textContent = why;
  if (!dialog.open) dialog.showModal();
  form.elements[focus].focus();
}

function keep(change) {
  settings = { ...settings, ...change };
  keepSettings(settings);
  document.documentElement.dataset.theme = settings.theme;
}

form.addEventListener("submit", (event) => {
  const values = Object.fromEntries(named.map((name) => [name, form.elements[name].value]));
  try {
    if (values.tools.trim() && !Array.isArray(JSON.parse(values.tools))) throw new Error("not a list");
  } catch (e) {
    event.preventDefault();
    at("settings-error").textContent = `The tools are no JSON list: ${e.message}`;
    form.querySelector("details").open = true;
    form.elements.tools.focus();
    return;
  }
  const other = values.key !== settings.key;
  keep(values);
  if (other) listModels();
});
form.addEventListener("input", () => { at("settings-error").textContent = ""; });
at("reset").addEventListener("click", () => { for (const name of named) form.elements[name].value = DEFAULTS[name]; });
at("show-settings").addEventListener("click", () => openSettings());
dialog.addEventListener("close", () => at("show-settings").focus());

// The engine

function showEngine(is) {
  at("engine").hidden = !is;
  at("show-engine").setAttribute("aria-expanded", String(is));
}
at("show-engine").addEventListener("click", () => {
  showEngine(at("engine").hidden);
  keep({ engine: at("engine").hidden ? "hidden" : "shown" });
  look();
});

async function listModels() {
  try {
    const { data } = await getJson("/v1/models", settings.key);
    models.replaceChildren(...data.map(({ id }) => new Option(id, id)));
    if (data.some(({ id }) => id === settings.model)) models.value = settings.model;
    else keep({ model: models.value });
    at("context").textContent = data[0]?.max_model_len?.toLocaleString() ?? "–";
  } catch (e) {
    models.replaceChildren(new Option(e.status === 401 ? "needs an API key" : "no model yet", ""));
    if (e.status === 401) openSettings("This server wants an API key.", "key");
  }
}
models.addEventListener("change", () => keep({ model: models.value }));

keep({});
const wide = matchMedia("(min-width: 60rem)").matches;
showEngine(settings.engine ? settings.engine === "shown" && wide : wide);
showAll();
const look = watch(listModels, () => settings.key);
prompt.focus();
