// Markdown as nodes. What a model writes is hostile: it becomes text nodes and a few known elements, never HTML. Images
// are not loaded, links go to the web only.

const DEEPEST = 6;
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)]) +(.*)$/;

export function element(name, properties = {}, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}

/** Shows `text` in `place`; blocks that have not changed stay as they are, so that a growing answer costs little. */
export function show(place, text) {
  const blocks = split(text);
  const shown = (place.blocks ??= []);
  blocks.forEach((block, i) => {
    if (shown[i] === block) return;
    const node = element("div", { className: "block" });
    render(node, block.split("\n"), 0);
    if (place.children[i]) place.children[i].replaceWith(node);
    else place.append(node);
  });
  while (place.children.length > blocks.length) place.lastElementChild.remove();
  place.blocks = blocks;
}

/** Pieces between empty lines; a fence, or what is indented below a list, holds together. */
function split(text) {
  const blocks = [];
  let block = [], fence = null, list = false;
  const end = () => { if (block.length) blocks.push(block.join("\n")); block = []; list = false; };
  for (const line of text.replace(/\r\n?/g, "\n").split("\n")) {
    if (fence) {
      block.push(line);
      if (closes(line, fence)) { fence = null; if (!list) end(); }
      continue;
    }
    const open = line.trimStart().match(FENCE);
    const inside = list && /^( {2}|\t)/.test(line);
    if (open && !inside) end();
    if (block.at(-1) === "" && line.trim() !== "" && !inside && !(list && ITEM.test(line))) end();
    if (open) fence = open[1];
    if (line.trim() === "" && !list) { end(); continue; }
    if (ITEM.test(line)) list = true;
    block.push(line.trim() === "" ? "" : line);
  }
  while (block.at(-1) === "") block.pop();
  end();
  return blocks;
}

function closes(line, fence) {
  const mark = line.trim();
  return mark.length >= fence.length && mark === fence[0].repeat(mark.length);
}

function render(into, lines, depth) {
  let i = 0;
  while (i < lines.length) {
    const line = lines[i];
    const fence = line.match(FENCE), heading = line.match(/^ {0,3}(#{1,6}) +(.*?) *#* *$/);
    if (line.trim() === "") i += 1;
    else if (fence) i = code(into, lines, i, fence);
    else if (heading) {
      // The page and the message have the first two levels.
      const level = Math.max(3, Math.min(6, heading[1].length + 1));
      into.append(inline(element(`h${level}`), heading[2]));
      i += 1;
    } else if (/^ {0,3}([-*_])( *\1){2,} *$/.test(line)) { into.append(element("hr")); i += 1; }
    else if (line.startsWith(">") && depth < DEEPEST) i = quote(into, lines, i, depth);
    else if (ITEM.test(line) && depth < DEEPEST) i = list(into, lines, i, depth);
    else if (isTable(lines, i)) i = table(into, lines, i);
    else i = paragraph(into, lines, i);
  }
}

function paragraph(into, lines, start) {
  let i = start + 1;
  const ends = (line) => line.trim() === "" || FENCE.test(line) || /^(#{1,6} |>)/.test(line) || ITEM.test(line);
  while (i < lines.length && !ends(lines[i])) i += 1;
  const p = element("p");
  lines.slice(start, i).forEach((line, n) => {
    if (n) p.append(/ {2}$|\\$/.test(lines[start + n - 1]) ? element("br") : "\n");
    inline(p, line.trim().replace(/\\$/, ""));
  });
  into.append(p);
  return i;
}

function code(into, lines, start, [, fence, language]) {
  let end = start + 1;
  while (end < lines.length && !closes(lines[end], fence)) end += 1;
  const text = lines.slice(start + 1, end).join("\n");
  const copy = element("button", { type: "button", className: "copy", textContent: "Copy" });
  copy.addEventListener("click", async () => {
    let word = "Copied";
    try { await navigator.clipboard.writeText(text); } catch { word = "Not allowed"; }
    copy.textContent = word;
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  });
  const name = language.slice(0, 24) || "code";
  const pre = element("pre", { tabIndex: 0, ariaLabel: `Code: ${name}` }, element("code", { textContent: text }));
  into.append(element("div", { className: "code" }, element("div", { className: "bar" }, element("span", { textContent: name }), copy), pre));
  return end + 1;
}

function quote(into, lines, start, depth) {
  let i = start;
  while (i < lines.length && lines[i].startsWith(">")) i += 1;
  const node = element("blockquote");
  render(node, lines.slice(start, i).map((line) => line.replace(/^> ?/, "")), depth + 1);
  into.append(node);
  return i;
}

function list(into, lines, start, depth) {
  const [, indent, mark] = lines[start].match(ITEM);
  const ordered = /\d/.test(mark);
  const node = element(ordered ? "ol" : "ul");
  if (ordered) node.start = parseInt(mark, 10);
  let i = start;
  while (i < lines.length) {
    const item = lines[i].match(ITEM);
    if (!item || item[1].length !== indent.length || /\d/.test(item[2]) !== ordered) break;
    const inner = [item[3]];
    for (i += 1; i < lines.length; i += 1) {
      const deeper = /^( {2}|\t)/.test(lines[i].slice(indent.length)) && !lines[i].slice(0, indent.length).trim();
      if (lines[i].trim() !== "" && !deeper) break;
      inner.push(lines[i].slice(indent.length).replace(/^ {1,3}\t?| {1,3}/, ""));
    }
    while (inner.at(-1)?.trim() === "") inner.pop();
    const li = element("li");
    render(li, inner, depth + 1);
    // A single paragraph needs no space around it.
    if (li.firstElementChild?.tagName === "P") li.firstElementChild.replaceWith(...li.firstElementChild.childNodes);
    node.append(li);
  }
  into.append(node);
  return i;
}

function cells(line) {
  return line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
}

function isTable(lines, i) {
  const rule = lines[i + 1];
  return lines[i].includes("|") && rule?.includes("-") && /^[ |:-]+$/.test(rule) && cells(rule).length === cells(lines[i]).length;
}

function table(into, lines, start) {
  const body = element("tbody");
  const row = (line, kind) => element("tr", {}, ...cells(line).slice(0, 64).map((cell) => inline(element(kind), cell)));
  let i = start + 2;
  for (; i < lines.length && lines[i].includes("|"); i += 1) body.append(row(lines[i], "td"));
  const node = element("table", {}, element("thead", {}, row(lines[start], "th")), body);
  into.append(element("div", { className: "table", tabIndex: 0, role: "region", ariaLabel: "Table" }, node));
  return i;
}

// Each alternative begins with another character and its end is searched for within one line.
const INLINE = /(`+)(.+?)\1(?!`)|\*\*(?=\S)(.+?)\*\*|__(?=\S)(.+?)__|~~(?=\S)(.+?)~~|\*(?=\S)([^*]+?)\*|(?<!\w)_(?=\S)([^_]+?)_(?!\w)|!?\[([^\]]*)\]\(([^)\s]+)(?: "[^"]*")?\)|(https?:\/\/[^\s<>()]+[^\s<>().,;:!?'"])|\\([\\`*_~[\]()#+.!|-])/g;
/** Longer lines are shown as they are. */
const LONGEST = 8000;

function inline(into, text, depth = 0) {
  if (text.length > LONGEST || depth > DEEPEST) { into.append(text); return into; }
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    into.append(text.slice(at, match.index));
    at = match.index + match[0].length;
    const [whole, , literal, strong, strong2, struck, em, em2, label, target, bare, escaped] = match;
    const inner = (name, words) => inline(element(name), words, depth + 1);
    if (literal !== undefined) into.append(element("code", { textContent: literal.replace(/^ (.+) $/, "$1") }));
    else if (strong ?? strong2) into.append(inner("strong", strong ?? strong2));
    else if (struck) into.append(inner("s", struck));
    else if (em ?? em2) into.append(inner("em", em ?? em2));
    else if (target) into.append(link(target, label || target, whole));
    else if (bare) into.append(link(bare, bare, whole));
    else into.append(escaped);
  }
  into.append(text.slice(at));
  return into;
}

function link(target, label, whole) {
  let url = null;
  try { url = new URL(target); } catch { /* relative or broken: no link */ }
  if (!["http:", "https:", "mailto:"].includes(url?.protocol)) return document.createTextNode(whole);
  return element("a", { href: url.href, target: "_blank", rel: "noopener noreferrer", title: url.href, textContent: label });
}
