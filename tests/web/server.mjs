// The demo model behind a port of its own.
import { spawn } from "node:child_process";
import { setTimeout as pause } from "node:timers/promises";

/** Starts the binary and waits until it answers requests. */
export async function start(binary) {
  const child = spawn(binary, ["serve", "--demo", "--port", "0"], { stdio: ["ignore", "ignore", "pipe"] });
  let log = "", over = false;
  child.stderr.setEncoding("utf8").on("data", (text) => { log += text; });
  child.on("exit", () => { over = true; });
  for (let tries = 0; tries < 600; tries += 1) {
    const base = log.match(/listening on (http:\S+)/)?.[1];
    const ready = base && (await fetch(`${base}/ready`).then((r) => r.ok, () => false));
    if (ready) return { base, stop: () => child.kill("SIGTERM") };
    if (over) break;
    await pause(200);
  }
  child.kill("SIGKILL");
  throw new Error(`the server did not start:\n${log}`);
}
