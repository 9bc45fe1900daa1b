// Clicks through the page in headless Chromium.
//
//     node page.mjs BINARY FOLDER     serves the demo model with it; screenshots go into the folder
//     node page.mjs URL FOLDER        a server that runs already
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";
import { HOSTILE, RICH, answer, cut, refusal } from "./canned.mjs";
import { start } from "./server.mjs";

const [server, folder] = process.argv.slice(2);
const { base, stop } = server.startsWith("http") ? { base: server, stop: () => {} } : await start(server);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: QUIET });

/** A fresh browser with the page in it; what goes wrong there fails the check. */
async function open(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  page.faults = [];
  page.on("pageerror", (e) => page.faults.push(String(e)));
  page.on("console", (m) => { if (m.type() === "error" && !/status of (4|5)\d\d/.test(m.text())) page.faults.push(m.text()); });
  page.on("request", (r) => { if (!r.url().startsWith(base)) page.faults.push(`asks ${r.url()}`); });
  page.setDefaultTimeout(30000);
  await page.goto(base);
  await page.waitForSelector("#model option:not([value=''])", { state: "attached" });
  return page;
}

/** What the page asks is answered from here; the requests that it made. */
async function answers(page, ...replies) {
  const asked = [];
  await page.unroute("**/v1/chat/completions");
  await page.route("**/v1/chat/completions", (route) => {
    asked.push({ body: route.request().postDataJSON(), key: route.request().headers().authorization });
    return route.fulfill(replies[Math.min(asked.length, replies.length) - 1]);
  });
  return asked;
}

async function say(page, text) {
  await page.fill("#prompt", text);
  await page.press("#prompt", "Enter");
  await over(page);
}

const over = (page) => page.waitForFunction(() => document.getElementById("stop").hidden && document.querySelector(".assistant footer button"));
const texts = (page, selector) => page.locator(selector).allInnerTexts();
const shot = (page, name) => page.screenshot({ path: `${folder}/${name}.png` });

const checks = {
  async "an answer streams in and is kept"(page) {
    await page.fill("#prompt", "Once upon");
    await page.press("#prompt", "Shift+Enter");
    await page.keyboard.type("a time");
    assert.equal(await page.inputValue("#prompt"), "Once upon\na time");
    await page.click("#show-settings");
    await page.fill("[name=max_tokens]", "24");
    await page.click("dialog [type=submit]");
    await page.focus("#prompt");
    await page.keyboard.press("Enter");
    await over(page);
    const [words] = await texts(page, ".assistant .words");
    assert.ok(words.trim().length > 0, "the answer is empty");
    assert.match((await texts(page, ".assistant footer small"))[0], /^\d+ tokens .*first after/);
    assert.equal(await page.evaluate(() => document.activeElement.id), "prompt");
    await page.reload();
    assert.deepEqual(await texts(page, ".user .words"), ["Once upon\na time"]);
    assert.deepEqual(await texts(page, ".assistant .words"), [words]);
  },

  async "Escape stops the answer, and the server"(page) {
    await page.fill("#prompt", "Tell me a very long story.");
    await page.press("#prompt", "Enter");
    await page.waitForFunction(() => document.querySelector(".assistant .words, .assistant .reasoning")?.parentNode.innerText.trim().length > 10);
    await page.keyboard.press("Escape");
    await over(page);
    assert.deepEqual(await texts(page, ".note"), ["Stopped."]);
    await page.fill("#prompt", "Tell me another.");
    await page.press("#prompt", "Enter");
    await page.click("#new");
    await page.waitForFunction(() => document.getElementById("stop").hidden);
    assert.deepEqual(await texts(page, "article"), []);
    await page.waitForFunction(async () => / 0(\.0)?\n/.test((await (await fetch("/metrics")).text()).match(/num_requests_running\{.*\n/)[0]));
  },

  async "a message can be edited, an answer made anew"(page) {
    const asked = await answers(page, answer({ content: "one" }), answer({ content: "two" }), answer({ content: "three" }), answer({ content: "four" }));
    await say(page, "first");
    await say(page, "second");
    await page.click(".regenerate");
    await over(page);
    assert.deepEqual(await texts(page, ".assistant .words"), ["one", "three"]);
    await page.locator(".user .edit").first().click();
    await page.keyboard.press("Escape");
    assert.deepEqual(await texts(page, ".user .words"), ["first", "second"]);
    await page.locator(".user .edit").first().click();
    await page.keyboard.type(", changed");
    await page.keyboard.press("Enter");
    await over(page);
    assert.deepEqual(await texts(page, "#log .words"), ["first, changed", "four"]);
    assert.deepEqual(asked.map((a) => a.body.messages.length), [1, 3, 3, 1]);
    assert.deepEqual(asked[1].body.messages, [{ role: "user", content: "first" }, { role: "assistant", content: "one" }, { role: "user", content: "second" }]);
    await page.click("#new");
    assert.equal(await page.isVisible("#welcome"), true);
    assert.deepEqual(await texts(page, "article"), []);
  },

  async "what a model writes stays text"(page) {
    await answers(page, answer({ reasoning_content: HOSTILE, content: HOSTILE }));
    await say(page, HOSTILE);
    await page.click(".reasoning summary");
    await page.click(".words a >> nth=0", { trial: true });
    const found = await page.evaluate(() => ({
      pwned: window.pwned ?? null,
      elements: [...new Set([...document.querySelectorAll("#log .words *")].map((e) => e.localName))].sort(),
      links: [...document.querySelectorAll("#log a")].map((a) => [new URL(a.href).protocol, a.rel]),
      handlers: document.querySelectorAll("#log [onerror], #log [onload], #log [onclick], #log [style]").length,
    }));
    assert.equal(found.pwned, null);
    assert.equal(found.handlers, 0);
    const known = ["a", "blockquote", "br", "button", "code", "div", "em", "li", "ol", "p", "pre", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"];
    assert.deepEqual(found.elements.filter((e) => !known.includes(e)), []);
    assert.ok(found.links.length > 0 && found.links.every(([p, rel]) => p === "https:" && rel === "noopener noreferrer"), String(found.links));
    assert.match((await texts(page, ".assistant .words"))[0], /<img src=x onerror="window.pwned=1">/);
  },

  async "Markdown has its form"(page) {
    await answers(page, answer(...RICH.match(/[^]{1,7}/g).map((content) => ({ content }))));
    await say(page, "How is a matrix cut?");
    const count = (selector) => page.locator(`.assistant .words ${selector}`).count();
    for (const [selector, n] of Object.entries({ "h3": 1, "strong": 1, "em": 2, "ol > li": 2, "ol ul > li": 2, "table": 1, "tbody tr": 2, "pre": 1, "blockquote": 1, "a": 1 })) {
      assert.equal(await count(selector), n, selector);
    }
    assert.match((await texts(page, "pre code"))[0], /^fn sum[^]*collect\(\)\n\}$/);
    await shot(page, "light");
  },

  async "thoughts are folded, calls shown and answered"(page) {
    const call = { index: 0, id: "call_1", type: "function", function: { name: "weather", arguments: '{"city":' } };
    const asked = await answers(page,
      answer({ reasoning_content: "I should " }, { reasoning_content: "look it up." }, { tool_calls: [call] }, { tool_calls: [{ index: 0, function: { arguments: '"Jena"}' } }] }),
      answer({ content: "It rains." }));
    await say(page, "How is the weather in Jena?");
    assert.equal(await page.isVisible(".reasoning > div"), false);
    await page.click(".reasoning summary");
    assert.equal(await page.innerText(".reasoning > div"), "I should look it up.");
    assert.match(await page.innerText(".call"), /weather\s+\{\n\s+"city": "Jena"\n\}/);
    await page.fill(".results textarea", '{"rain": true}');
    await shot(page, "tools");
    await page.click(".results [type=submit]");
    await over(page);
    assert.deepEqual(asked[1].body.messages.slice(1), [
      { role: "assistant", content: "", reasoning_content: "I should look it up.",
        tool_calls: [{ id: "call_1", type: "function", function: { name: "weather", arguments: '{"city":"Jena"}' } }] },
      { role: "tool", tool_call_id: "call_1", content: '{"rain": true}' },
    ]);
  },

  async "settings reach the server and are kept"(page) {
    const asked = await answers(page, answer({ content: "ok" }));
    await page.click("#show-settings");
    await page.fill("[name=system]", "Be brief.");
    await page.fill("[name=temperature]", "0.5");
    await page.fill("[name=top_p]", "0.9");
    await page.fill("[name=max_tokens]", "100");
    await page.selectOption("[name=thinking]", "off");
    await page.selectOption("[name=theme]", "dark");
    await page.fill("[name=key]", "secret");
    await page.click("dialog summary");
    await page.fill("[name=tools]", "{");
    await page.click("dialog [type=submit]");
    assert.match(await page.innerText("#settings-error"), /no JSON list/);
    await page.fill("[name=tools]", '[{"type": "function", "function": {"name": "f"}}]');
    await shot(page, "settings");
    await page.click("dialog [type=submit]");
    await page.reload();
    await page.waitForSelector("#model option:not([value=''])", { state: "attached" });
    await say(page, "Hello");
    const { model, messages, ...rest } = asked[0].body;
    assert.ok(model);
    assert.deepEqual(messages[0], { role: "system", content: "Be brief." });
    assert.deepEqual(rest, { stream: true, stream_options: { include_usage: true }, temperature: 0.5, top_p: 0.9, max_tokens: 100,
      chat_template_kwargs: { enable_thinking: false }, tools: [{ type: "function", function: { name: "f" } }] });
    assert.equal(asked[0].key, "Bearer secret");
    assert.equal(await page.evaluate(() => getComputedStyle(document.documentElement).colorScheme), "dark");
  },

  async "failures are told"(page) {
    await answers(page, refusal(429, "the queue is full", { "retry-after": "3" }), cut, refusal(401, "this server wants an API key"));
    await say(page, "one");
    assert.deepEqual(await texts(page, ".note"), ["the queue is full Try again in 3 s."]);
    await page.click(".regenerate");
    await over(page);
    assert.deepEqual(await texts(page, ".assistant .words"), ["half a"]);
    assert.deepEqual(await texts(page, ".note"), ["The connection was cut before the answer's end."]);
    await page.click(".regenerate");
    await over(page);
    assert.equal(await page.isVisible("#settings"), true);
    assert.equal(await page.evaluate(() => document.activeElement.name), "key");
  },

  async "the engine shows its numbers"(page) {
    assert.equal(await page.isVisible("#engine"), true);
    await page.waitForFunction(() => /^\d/.test(document.getElementById("rate").textContent));
    for (const id of ["running", "waiting", "written", "reading", "cache-share", "prefix-share", "context"]) {
      assert.match(await page.innerText(`#${id}`), /^\d/, id);
    }
    assert.match(await page.innerText("#health"), /^ready$/i);
    await page.click("#show-engine");
    assert.equal(await page.isVisible("#engine"), false);
    await page.reload();
    assert.equal(await page.isVisible("#engine"), false);
  },

  async "keyboard and screen readers find everything"(page) {
    await page.focus("#model");
    await page.keyboard.press("Shift+Tab");
    assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
    await answers(page, answer({ reasoning_content: "hm", content: RICH }));
    await say(page, "How is a matrix cut?");
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      for (const dialog of [false, true]) {
        if (dialog) await page.click("#show-settings");
        await page.evaluate(axe);
        const { violations } = await page.evaluate(() => axe.run());
        assert.deepEqual(violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html.slice(0, 90)).join(" | ")}`), [], colorScheme);
        if (dialog) await page.keyboard.press("Escape");
      }
      await shot(page, `axe-${colorScheme}`);
    }
  },

  async "a narrow window is enough"(page) {
    await page.setViewportSize({ width: 360, height: 740 });
    await page.reload();
    assert.equal(await page.isVisible("#engine"), false);
    await shot(page, "narrow-welcome");
    await answers(page, answer({ reasoning_content: "hm", content: RICH + "\n\n" + "x".repeat(300) }));
    await say(page, "How is a matrix cut?");
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth && document.getElementById("scroll").scrollWidth <= innerWidth));
    await shot(page, "narrow");
    await page.click("#show-engine");
    await page.waitForFunction(() => /^\d/.test(document.getElementById("running").textContent));
    await shot(page, "narrow-engine");
    for (const id of ["new", "show-settings", "prompt", "send"]) assert.equal(await page.isVisible(`#${id}`), true, id);
  },
};

const response = await fetch(base);
const policy = response.headers.get("content-security-policy") ?? "";
assert.match(policy, /default-src 'none'/);
assert.doesNotMatch(policy, /unsafe|\*|data:|blob:/);

let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  const page = await open();
  try {
    await check(page);
    assert.deepEqual(page.faults, []);
    console.log(`ok      ${name}`);
  } catch (e) {
    failed += 1;
    await shot(page, `failed-${failed}`);
    console.log(`FAILED  ${name}\n${e.stack}`);
  }
  await page.context().close();
}
await browser.close();
stop();
console.log(`${Object.keys(checks).length - failed} of ${Object.keys(checks).length} checks passed`);
process.exit(failed ? 1 : 0);
