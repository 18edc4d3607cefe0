#!/usr/bin/env node
// How soon the report page can be used, and how long a frame of a timeline with 200,000 spans takes, in a real browser.
//
// Usage: bench/report_page_speed.mjs build/release/weft build/web    (tools/setup.sh --with web has installed the browser)
//
// Beside other work a machine's clock says more than is needed, so the main thread's own time counts.
import assert from "node:assert/strict";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import process from "node:process";
import { open_page, start_browser } from "../tests/web/browser.mjs";
import { run_weft, write_large_timeline } from "../tests/web/sample_files.mjs";

const [weft, modules] = process.argv.slice(2);
const kFrames = 40, kGoalUsableMs = 1000, kGoalFrameMs = 1000 / 60;

// In the page: moves it `count` times. Callbacks of a frame run in the order in which they were asked for, so the page draws
// between the two of these.
async function measure_frames(count) {
  const canvas = document.querySelector("#timeline canvas[tabindex]"), drawing = [], frames = [];
  let last = performance.now();
  for (let i = 0; i < count; ++i) {
    await new Promise((done) => {
      let before = 0;
      requestAnimationFrame(() => (before = performance.now()));
      canvas.dispatchEvent(new KeyboardEvent("keydown", { key: i % 2 ? "a" : "d", bubbles: true }));
      requestAnimationFrame(() => {
        drawing.push(performance.now() - before);
        done();
      });
    });
    frames.push(performance.now() - last);
    last = performance.now();
  }
  const median = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];
  return { drawing_ms: median(drawing), frame_ms: median(frames) };
}

async function main_thread_ms(session) {
  const { metrics } = await session.send("Performance.getMetrics");
  return 1000 * metrics.find(({ name }) => name === "TaskDuration").value;
}

async function count_main_thread(page) {
  const session = await page.createCDPSession();
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  return session;
}

async function measure_usable(browser, file) {
  const page = await browser.newPage(), session = await count_main_thread(page);
  await page.goto(`file://${file}`);
  await page.waitForFunction(() => document.documentElement.dataset.ready === "true", { timeout: 60000 });
  const usable_ms = await page.evaluate(() => performance.now()), busy_ms = await main_thread_ms(session);
  await page.close();
  return { case: "llama2-70b is usable", bytes: fs.statSync(file).size, clock_ms: usable_ms, main_thread_ms: busy_ms, goal_ms: kGoalUsableMs };
}

async function measure_moving(browser, file, zooms) {
  const { page } = await open_page(browser, file), session = await count_main_thread(page);
  await page.focus("#timeline canvas[tabindex]");
  for (let i = 0; i < zooms; ++i) await page.keyboard.press("w");
  const before = await main_thread_ms(session), clock = await page.evaluate(measure_frames, kFrames);
  const busy = ((await main_thread_ms(session)) - before) / kFrames;
  await page.close();
  return { case: `a frame of 200,000 spans, zoomed ${zooms} times`, ...clock, main_thread_ms: busy, goal_ms: kGoalFrameMs };
}

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "weft_page_"));
function checked(...command) {
  const done = run_weft(weft, ...command);
  assert.equal(done.code, 0, done.err);
}
const plan = path.join(folder, "plan"), large = path.join(folder, "large.html");
checked(..."plan --model llama2-70b --cluster dgx-a100:8 --tp 4 --pp 4 --global-batch 128 --policy serial,ddp,megatron --out".split(" "), plan);
checked("report", write_large_timeline(folder, 8, 200000), "-o", large);

const browser = await start_browser(modules);
console.log(JSON.stringify(await measure_usable(browser, path.join(plan, "report.html"))));
for (const zooms of [0, 6, 12]) console.log(JSON.stringify(await measure_moving(browser, large, zooms)));
await browser.close();
fs.rmSync(folder, { recursive: true });
