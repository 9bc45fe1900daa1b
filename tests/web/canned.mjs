// Answers that no model gives when asked to, for the page's own requests: hostile text, thoughts, calls, failures.

const sse = (events) => events.map((e) => `data: ${typeof e === "string" ? e : JSON.stringify(e)}\n\n`).join("");
const piece = (delta, finish = null) => ({ choices: [{ index: 0, delta, finish_reason: finish }] });

/** A whole answer of these deltas. */
export const answer = (...deltas) => ({
  status: 200,
  contentType: "text/event-stream",
  body: sse([
    piece({ role: "assistant", content: "" }),
    ...deltas.map((delta) => piece(delta)),
    piece({}, "stop"),
    { choices: [], usage: { prompt_tokens: 40, completion_tokens: 12, prompt_tokens_details: { cached_tokens: 32 } } },
    "[DONE]",
  ]),
});

/** An answer that the connection cuts. */
export const cut = { status: 200, contentType: "text/event-stream", body: sse([piece({ content: "half a " })]) };

export const refusal = (status, message, headers = {}) => ({
  status, headers, contentType: "application/json", body: JSON.stringify({ error: { message } }),
});

export const HOSTILE = [
  '<img src=x onerror="window.pwned=1"> <script>window.pwned=2</script>',
  "[click](javascript:window.pwned=3) [data](data:text/html,<script>1</script>) ![spy](https://spy.example/a.png)",
  "<https://ok.example/> https://ok.example/path [fine](https://ok.example/?a=1&b=<b>)",
  "```html\n<svg onload=window.pwned=4></svg>\n```",
  "|a|b|\n|-|-|\n|<b onclick=x>|**c**|",
  "> ".repeat(300) + "deep",
  "- ".repeat(300) + "deep",
  "*".repeat(3000) + "[".repeat(3000) + "`".repeat(3000),
  "\u202e\u0000 end",
].join("\n\n");

export const RICH = `## How it is cut

A **matrix** is dealt out by *rows* or by *columns*:

1. Rows need no sum.
2. Columns do:
   - partial products,
   - then one \`all-reduce\`.

| cut | sum | bytes |
| --- | --- | --- |
| rows | no | 0 |
| columns | yes | 2 n |

\`\`\`rust
fn sum(parts: &[Vec<f32>]) -> Vec<f32> {
    (0..parts[0].len()).map(|i| parts.iter().map(|p| p[i]).sum()).collect()
}
\`\`\`

> Every rank has the same list of ops.

See [the docs](https://example.org/docs).`;
