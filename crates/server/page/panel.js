// The live engine panel, from /health, /metrics and /version.

import { getJson, getText } from "./api.js";

const EVERY = 2000, SAMPLES = 60;
const at = (id) => document.getElementById(id);
const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const share = new Intl.NumberFormat(undefined, { style: "percent", maximumFractionDigits: 0 });

/** Sums of the metrics under their names without the server's prefix. */
export function parse(text) {
  const sums = {};
  for (const line of text.split("\n")) {
    const found = line.match(/^(?:\w+:)?(\w+)(?:\{.*\})? ([-+.\deE]+)/);
    if (found) sums[found[1]] = (sums[found[1]] ?? 0) + Number(found[2]);
  }
  return sums;
}

let last = null;
const rates = [];

function numbers(sums, now) {
  at("running").textContent = whole.format(sums.num_requests_running ?? 0);
  at("waiting").textContent = whole.format(sums.num_requests_waiting ?? 0);
  at("written").textContent = whole.format(sums.generation_tokens_total ?? 0);
  gauge("cache", sums.kv_cache_usage_perc ?? 0);
  gauge("prefix", sums.prompt_tokens_total ? (sums.prefix_cache_hits_total ?? 0) / sums.prompt_tokens_total : 0);
  if (last) {
    const rate = (name) => Math.max(0, (sums[name] ?? 0) - (last.sums[name] ?? 0)) / ((now - last.now) / 1000);
    rates.push(rate("generation_tokens_total"));
    if (rates.length > SAMPLES) rates.shift();
    at("rate").textContent = whole.format(rates.at(-1));
    at("reading").textContent = whole.format(rate("prompt_tokens_total"));
    draw();
  }
  last = { sums, now };
}

function gauge(id, value) {
  at(id).value = value;
  at(`${id}-share`).textContent = share.format(value);
}

function draw() {
  const most = Math.max(...rates, 1);
  const place = (rate, i) => `${(120 * (i + SAMPLES - rates.length)) / (SAMPLES - 1)},${(30 - (28 * rate) / most).toFixed(1)}`;
  at("curve").firstElementChild.setAttribute("points", rates.map(place).join(" "));
}

async function health() {
  try {
    const response = await fetch("/health");
    const said = await response.json().catch(() => ({}));
    return { word: said.status ?? (response.ok ? "ready" : "closed"), more: said.message ?? "" };
  } catch {
    return { word: "unreachable", more: "the server does not answer" };
  }
}

/** Watches the engine; `ready` is told whenever it becomes so. What it returns looks at once. */
export function watch(ready, key) {
  let word = "", shown = "", looks = false;
  const look = async () => {
    if (document.hidden || looks) return;
    looks = true;
    const now = await health();
    at("dot").dataset.state = now.word;
    const says = now.more && now.more !== now.word ? now.more : now.word;
    if (says !== shown) at("health").textContent = shown = says;
    at("health").dataset.state = now.word;
    if (now.word === "ready" && word !== "ready") {
      ready();
      at("version").textContent = await getJson("/version").then((said) => said.version).catch(() => "");
    }
    word = now.word;
    if (!at("engine").hidden) {
      const text = await getText("/metrics", key()).catch(() => "");
      if (text) numbers(parse(text), performance.now());
    }
    looks = false;
  };
  setInterval(look, EVERY);
  look();
  return look;
}
