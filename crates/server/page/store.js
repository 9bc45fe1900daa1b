// What the browser keeps: settings and the conversation. Without storage everything works until the page is closed.

const SETTINGS = "shardwright.settings", TALK = "shardwright.conversation";

export const DEFAULTS = {
  system: "", temperature: "", top_p: "", max_tokens: "", thinking: "", theme: "", key: "", tools: "", model: "", engine: "",
};

function load(name) {
  try { return JSON.parse(localStorage.getItem(name)); } catch { return null; }
}

function save(name, value) {
  try { localStorage.setItem(name, JSON.stringify(value)); } catch { /* full or forbidden */ }
}

const text = (value) => (typeof value === "string" ? value : "");

/** Settings, each of them a text. */
export function settings() {
  const kept = load(SETTINGS) ?? {};
  return Object.fromEntries(Object.keys(DEFAULTS).map((name) => [name, text(kept[name])]));
}

export function keepSettings(values) { save(SETTINGS, values); }

/** Messages as this page writes them; whatever else lies there is left out. */
export function conversation() {
  const kept = load(TALK);
  const roles = ["user", "assistant", "tool"];
  return (Array.isArray(kept) ? kept : []).filter((m) => roles.includes(m?.role) && typeof m.content === "string").map((m) => ({
    role: m.role, content: m.content, reasoning: text(m.reasoning), note: text(m.note), facts: text(m.facts), call: text(m.call),
    calls: (Array.isArray(m.calls) ? m.calls : []).map((c) => ({ id: text(c?.id), name: text(c?.name), arguments: text(c?.arguments) })),
  }));
}

export function keepConversation(messages) { save(TALK, messages); }
