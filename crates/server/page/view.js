// One message on the page.

import { element, show } from "./markdown.js";

const title = (text) => element("h2", { className: "unseen", textContent: text });

const button = (label, act, more = {}) => {
  const node = element("button", { type: "button", textContent: label, ...more });
  node.addEventListener("click", act);
  return node;
};

/** The node of a message. `can` has what the user may do with it: `edit(text)`, `regenerate()`, `answer(results)`. */
export function view(message, can) {
  if (message.role === "user") return user(message, can);
  if (message.role === "tool") return tool(message);
  const node = element("article", { className: "assistant", ariaLabel: "Answer" });
  node.append(title("Answer"), element("details", { className: "reasoning", hidden: true }, element("summary"), element("div")));
  node.append(element("div", { className: "words" }), element("div", { className: "calls" }), element("p", { className: "note", hidden: true }));
  node.append(element("footer"));
  update(node, message, false);
  finish(node, message, can);
  return node;
}

/** Shows what has come so far. */
export function update(node, message, busy) {
  const [, reasoning, words, calls, note] = node.children;
  node.setAttribute("aria-busy", String(busy));
  node.classList.toggle("empty", busy && !message.content && !message.reasoning && !message.calls.length);
  reasoning.hidden = !message.reasoning;
  if (message.reasoning) {
    const thinks = busy && !message.content && !message.calls.length;
    reasoning.classList.toggle("thinks", thinks);
    reasoning.firstElementChild.textContent = thinks ? "Thinking…" : "Thoughts";
    show(reasoning.lastElementChild, message.reasoning);
  }
  show(words, message.content);
  message.calls.forEach((call, i) => {
    calls.children[i] ?? calls.append(callNode());
    const [name, given] = calls.children[i].children;
    name.textContent = call.name;
    given.textContent = pretty(call.arguments);
  });
  note.hidden = !message.note;
  note.textContent = message.note;
}

/** What belongs below a message that is complete. */
export function finish(node, message, can) {
  const copy = button("Copy", async () => {
    try { await navigator.clipboard.writeText(message.content); copy.textContent = "Copied"; } catch { copy.textContent = "Not allowed"; }
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  });
  const footer = node.lastElementChild;
  footer.replaceChildren(copy);
  if (can.regenerate) footer.append(button("Regenerate", can.regenerate, { className: "regenerate" }));
  footer.append(element("small", { textContent: message.facts }));
  if (can.answer && message.calls.length) node.querySelector(".calls").after(results(message, can.answer));
}

function callNode() {
  return element("div", { className: "call", role: "group", ariaLabel: "Tool call" }, element("b"), element("pre", { tabIndex: 0, ariaLabel: "Arguments" }));
}

function pretty(json) {
  try { return JSON.stringify(JSON.parse(json), null, 2); } catch { return json; }
}

/** The user plays the tools. */
function results(message, answer) {
  const fields = message.calls.map((call) => element("textarea", { rows: 2, ariaLabel: `Result of ${call.name}`, placeholder: `What ${call.name} returns` }));
  const form = element("form", { className: "results" }, ...fields, element("button", { type: "submit", className: "main", textContent: message.calls.length > 1 ? "Send results" : "Send result" }));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    answer(fields.map((field) => field.value));
  });
  return form;
}

function tool(message) {
  return element("article", { className: "tool", ariaLabel: "Tool result" }, element("b", { textContent: "result" }), element("pre", { tabIndex: 0, textContent: message.content }));
}

function user(message, can) {
  const node = element("article", { className: "user", ariaLabel: "Your message" });
  const rest = () => {
    const edit = can.edit && button("Edit", change, { className: "edit" });
    node.replaceChildren(title("You"), element("div", { className: "words", textContent: message.content }), element("footer", {}, ...(edit ? [edit] : [])));
  };
  const change = () => {
    const field = element("textarea", { value: message.content, ariaLabel: "Your message", rows: Math.min(12, message.content.split("\n").length + 1) });
    const cancel = () => { rest(); node.querySelector(".edit")?.focus(); };
    const send = () => { if (field.value.trim()) can.edit(field.value); };
    const form = element("form", { className: "editing" }, field, element("div", {}, button("Cancel", cancel), element("button", { type: "submit", className: "main", textContent: "Send" })));
    form.addEventListener("submit", (event) => { event.preventDefault(); send(); });
    field.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Escape") { event.stopPropagation(); cancel(); }
      if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); send(); }
    });
    node.replaceChildren(form);
    field.focus();
    field.setSelectionRange(field.value.length, field.value.length);
  };
  rest();
  return node;
}
