// The Vercel AI SDK against a running server: text, streams, tools, for both of its OpenAI providers.
import assert from 'node:assert/strict';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { createOpenAI } from '@ai-sdk/openai';
import { generateText, streamText, tool } from 'ai';
import { z } from 'zod';

const [base, name] = process.argv.slice(2);
const options = { temperature: 0, maxRetries: 0, maxOutputTokens: 200 };
const prompt = 'Tell me a story about a cat.';
const weather = tool({
  description: 'The weather in a city',
  inputSchema: z.object({ city: z.string() }),
});

async function check(label, model) {
  const whole = await generateText({ model, prompt, ...options, maxOutputTokens: 40 });
  assert.ok(whole.text.length > 0 || whole.reasoningText?.length > 0, label);
  const stream = streamText({ model, prompt, ...options, maxOutputTokens: 40 });
  let text = '';
  for await (const piece of stream.textStream) text += piece;
  assert.equal(text, whole.text, label);
  assert.ok((await stream.usage).outputTokens > 0, label);
  const called = await generateText({ model, prompt: 'What is the weather in Paris?', tools: { get_weather: weather }, ...options });
  assert.equal(called.toolCalls[0]?.toolName, 'get_weather', label);
  assert.ok(called.toolCalls[0].input.city, label);
  console.log(`ai sdk, ${label} passed`);
}

await check('openai-compatible', createOpenAICompatible({ name: 'shardwright', baseURL: `${base}/v1`, includeUsage: true }).chatModel(name));
const openai = createOpenAI({ baseURL: `${base}/v1`, apiKey: 'none' });
await check('openai chat', openai.chat(name));
await check('openai responses', openai.responses(name));
