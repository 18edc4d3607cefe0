// The report page in a real browser: it loads, draws what the files say, answers to keys and clicks, asks for nothing from
// anywhere, and stays safe with what strangers send.
//
// Usage: report_page_test.mjs WEFT FOLDER_OF_NODE_MODULES [FOLDER_FOR_PICTURES]
import assert from "node:assert/strict";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import process from "node:process";
import { open_page, start_browser } from "./browser.mjs";
import { kHostileName, run_weft, summed, timelines_of, write_hostile_summary, write_hostile_trace, write_large_timeline } from "./sample_files.mjs";

const [weft, modules, pictures] = process.argv.slice(2);
const kGutter = 148, kRightMargin = 8;  // of a timeline's canvas
const folder = fs.mkdtempSync(path.join(os.tmpdir(), "weft_report_"));
let passed = 0, failed = 0;

async function check(name, body) {
  try {
    await body();
    ++passed;
    console.log(`ok: ${name}`);
  } catch (error) {
    ++failed;
    console.log(`FAILED: ${name}\n${error.stack}`);
  }
}

async function picture(page, name) {
  if (pictures) await page.screenshot({ path: path.join(pictures, `${name}.png`), fullPage: true });
}

const range_of = (page) => page.$eval("#timeline", (root) => [Number(root.dataset.begin), Number(root.dataset.end)]);
const settle = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
const text_of = (page, selector) => page.$eval(selector, (found) => found.textContent);

async function press(page, key) {
  await page.keyboard.press(key);
  await settle(page);
}

function make_page(name, ...inputs) {
  const file = path.join(folder, name), done = run_weft(weft, "report", ...inputs, "-o", file);
  assert.equal(done.code, 0, done.err);
  return file;
}

const plan = path.join(folder, "plan");
const planned = run_weft(weft, ..."plan --model gpt2 --cluster dgx-a100:2 --tp 2 --pp 4 --global-batch 64 --policy serial,ddp,megatron --json --explain --out".split(" "), plan);
assert.equal(planned.code, 0, planned.err);
const summary = JSON.parse(planned.out), plan_page = path.join(plan, "report.html");
const browser = await start_browser(modules);

async function check_headline(page) {
  // Lengths of bars are to each other as the steps; the bound's line lies at its share of the longest.
  const drawn = await page.$$eval("#step .track", (tracks) => tracks.map((track) => ({
    track: track.getBoundingClientRect(), bar: track.querySelector(".bar").getBoundingClientRect().toJSON(),
    limit: track.querySelector(".limit").getBoundingClientRect().toJSON(), left: track.getBoundingClientRect().left,
    width: track.getBoundingClientRect().width, terms: [...track.querySelectorAll(".bar > span")].map((span) => span.getBoundingClientRect().width) })));
  const steps = Object.values(summary.policies).map((policy) => policy.step_s), longest = Math.max(...steps);
  assert.equal(drawn.length, steps.length);
  drawn.forEach(({ bar, limit, left, width, terms }, i) => {
    assert.ok(Math.abs(bar.width - (width * steps[i]) / longest) < 1, `bar ${i}`);
    assert.ok(Math.abs(limit.left - left - (width * summary.bound_s) / longest) < 2, `bound ${i}`);
    const policy = Object.values(summary.policies)[i];
    assert.ok(Math.abs(terms[0] - (bar.width * policy.compute_s) / policy.step_s) < 2, `compute of bar ${i}`);
  });
}

async function check_keys(page) {
  await page.focus("#timeline canvas[tabindex]");
  await press(page, "0");
  const [, whole] = await range_of(page);
  await press(page, "w");
  const [begin, end] = await range_of(page);
  assert.ok(Math.abs(end - begin - 0.625 * whole) < 1e-6 * whole, "w shows five eighths");
  await press(page, "d");
  const moved = await range_of(page);
  assert.ok(Math.abs(moved[0] - Math.min(begin + 0.2 * (end - begin), whole - (end - begin))) < 1e-6 * whole, "d moves by a fifth");
  await press(page, "s");
  await press(page, "0");
  assert.deepEqual(await range_of(page), [0, whole]);
}

async function check_wheel_and_drag(page) {
  await page.focus("#timeline canvas[tabindex]");
  await press(page, "0");
  const canvas = await page.$("#timeline canvas[tabindex]"), box = await canvas.boundingBox();
  await page.mouse.move(box.x + kGutter + (box.width - kGutter - kRightMargin) / 4, box.y + 60);
  await page.keyboard.down("Control");
  await page.mouse.wheel({ deltaY: -300 });
  await page.keyboard.up("Control");
  await settle(page);
  const [begin, end] = await range_of(page), [, whole] = [0, (await page.$eval("#timeline", (root) => Number(root.dataset.end))) - begin];
  assert.ok(end - begin > 0 && begin > 0 && whole > 0, "the wheel zooms around the pointer");
  await page.mouse.down();
  await page.mouse.move(box.x + kGutter + (box.width - kGutter - kRightMargin) / 4 - 100, box.y + 60, { steps: 3 });
  await page.mouse.up();
  await settle(page);
  const moved = await range_of(page), expected = (100 * (end - begin)) / (box.width - kGutter - kRightMargin);
  assert.ok(Math.abs(moved[0] - begin - expected) < 0.02 * expected, "dragging moves as far as the pointer");
  await press(page, "0");
}

async function check_search(page) {
  // Both panels are searched.
  const wanted = "qkv", titles = await page.$$eval("#timeline .frame > h3", (found) => found.map((title) => title.firstChild.textContent));
  let expected = 0;
  for (const timeline of timelines_of(plan_page).filter((t) => titles.includes(t.title))) {
    const names = summed(timeline.operations.name);
    expected += summed(timeline.spans.operation).filter((operation) => timeline.names[names[operation]].includes(wanted)).length;
  }
  assert.ok(expected > 0);
  await page.keyboard.press("/");
  await page.keyboard.type(wanted);
  await settle(page);
  assert.equal(await text_of(page, "#timeline [role=status]"), `${expected.toLocaleString("en-US")} found`);
  await page.keyboard.press("Enter");
  await settle(page);
  assert.match(await text_of(page, "#timeline [role=status]"), /^1 of /);
  assert.match(await text_of(page, ".detail h3"), /qkv/);
  await page.$eval("#timeline input[type=search]", (input) => {
    input.value = "";
    input.dispatchEvent(new Event("input"));
    input.blur();
  });
}

async function check_click(page) {
  // The longest span of the first rank's compute, by another reader; the row of compute is below that of the critical path.
  const title = await page.$eval("#timeline .frame > h3", (found) => found.firstChild.textContent);
  const timeline = timelines_of(plan_page).find((t) => t.title === title), { operations: o, spans: s } = timeline;
  const operation = summed(s.operation), start = summed(s.start), name = summed(o.name);
  const spans = start.map((_, i) => i).filter((i) => o.rank[operation[i]] === 0 && o.queue[operation[i]] === 0 && start[i] > 0);
  const longest = spans.reduce((a, b) => (s.length[b] > s.length[a] ? b : a));
  await page.focus("#timeline canvas[tabindex]");
  await press(page, "0");
  const [begin, end] = await range_of(page), box = await (await page.$("#timeline canvas[tabindex]")).boundingBox();
  const middle = start[longest] + s.length[longest] / 2, width = box.width - kGutter - kRightMargin;
  await page.mouse.click(box.x + kGutter + ((middle - begin) * width) / (end - begin), box.y + 54);
  await settle(page);
  assert.equal(await text_of(page, ".detail h3"), timeline.names[name[operation[longest]]]);
  assert.match(await text_of(page, ".detail"), /Why here, and not earlier/);
  await picture(page, "selected");
  // What it waited for can be gone to.
  const link = await page.$(".detail li button"), waited = await link.evaluate((found) => found.textContent);
  await link.evaluate((found) => found.click());
  await settle(page);
  assert.equal(await text_of(page, ".detail h3"), waited);
  await page.focus("#timeline canvas[tabindex]");
  await press(page, "Escape");
  assert.match(await text_of(page, ".detail"), /^Click a span/);
}

async function check_compare(page) {
  const panels = () => page.$$eval("#timeline .frame > h3", (found) => found.length);
  assert.equal(await panels(), 2);
  await page.select("#timeline select[aria-label='timeline below']", "-1");
  await page.waitForFunction(() => document.querySelectorAll("#timeline .frame > h3").length === 1);
  await page.select("#timeline select[aria-label='timeline below']", "2");
  await page.waitForFunction(() => document.querySelectorAll("#timeline .frame > h3").length === 2);
  assert.equal(await panels(), 2);
}

// The contrast of WCAG 2: text 4.5, other things 3.
async function check_contrast(page) {
  const colours = await page.evaluate(() => {
    const style = getComputedStyle(document.documentElement);
    return Object.fromEntries(["ink", "muted", "paper", "exposed", "input-grad"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  });
  const light = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
    .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  for (const name of ["ink", "muted"]) assert.ok(contrast(colours[name], colours.paper) >= 4.5, name);
  for (const name of ["exposed", "input-grad"]) assert.ok(contrast(colours[name], colours.paper) >= 3, name);
}

// In the page: moves it by a fifth, and returns how many rectangles and images that painted on how wide a canvas.
async function count_of_painted() {
  const canvas = document.querySelector("#timeline canvas[tabindex]"), context = CanvasRenderingContext2D.prototype;
  const counts = { fillRect: 0, drawImage: 0 }, originals = {};
  for (const name of Object.keys(counts)) {
    originals[name] = context[name];
    context[name] = function (...values) {
      ++counts[name];
      return originals[name].apply(this, values);
    };
  }
  canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "d", bubbles: true }));
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  Object.assign(context, originals);
  return { ...counts, width: canvas.getBoundingClientRect().width };
}

// The flame's root and its kinds against the exposed time of the summary, whose seconds are those of a mean rank.
async function check_exposure(page) {
  const title = await page.$eval("#timeline .frame > h3", (found) => found.firstChild.textContent);
  const policy = summary.policies[title.split(",")[0]];
  const words = await page.$$eval("#exposure .flame-root > .flame > .flames > .flame > span", (found) => found.map((span) => span.title));
  const percents = words.map((text) => Number(text.match(/\(([\d.]+) %\)$/)[1]));
  const expected = Object.values(policy.exposed_by_kind).filter((seconds) => seconds > 0.002 * policy.exposed_comm_s)
    .map((seconds) => (100 * seconds) / policy.exposed_comm_s).sort((a, b) => b - a);
  assert.ok(percents.length >= expected.length);
  expected.forEach((percent, i) => assert.ok(Math.abs(percents[i] - percent) < 0.6, `${words[i]}: ${percent}`));
}

// What the links of a group carry in the whole window against the bytes of its transfers.
async function check_links(page) {
  assert.equal(await page.$eval("#links", (found) => found.hidden), false);
  const painted = await page.$eval("#links canvas", (canvas) => {
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    let count = 0;
    for (let i = 3; i < pixels.length; i += 4) count += pixels[i] > 0;
    return count;
  });
  assert.ok(painted > 1000, "something is drawn");
}

for (const dark of [false, true]) {
  const mode = dark ? "dark" : "light", { page, noticed, ready_ms } = await open_page(browser, plan_page, { dark });
  console.log(`${mode}: usable after ${ready_ms.toFixed(0)} ms, ${fs.statSync(plan_page).size} bytes`);
  await check(`${mode}: bars are as long as the report says`, () => check_headline(page));
  await check(`${mode}: text can be read`, () => check_contrast(page));
  await check(`${mode}: keys zoom and move`, () => check_keys(page));
  await check(`${mode}: wheel and drag`, () => check_wheel_and_drag(page));
  await check(`${mode}: search finds what is there`, () => check_search(page));
  await check(`${mode}: a click tells what it hits`, () => check_click(page));
  await check(`${mode}: exposed time is taken apart`, () => check_exposure(page));
  await check(`${mode}: links are drawn`, () => check_links(page));
  await check(`${mode}: timelines are compared`, () => check_compare(page));
  await picture(page, mode);
  await check(`${mode}: no errors and no requests`, () => assert.deepEqual(noticed, []));
  await page.close();
}

await check("narrow: nothing is wider than the screen, values stand beside their names", async () => {
  const { page } = await open_page(browser, plan_page);
  await page.setViewport({ width: 420, height: 900 });
  await settle(page);
  assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 420);
  const tops = (kind) => page.$$eval(`#step .bars .${kind}`, (found) => found.map((box) => box.getBoundingClientRect()).map((box) => (box.top + box.bottom) / 2));
  const names = await tops("name"), values = await tops("value"), tracks = await tops("track");
  names.forEach((name, i) => assert.ok(Math.abs(name - values[i]) < 2 && name < tracks[i] && (i === 0 || name > tracks[i - 1]), `row ${i}`));
  await picture(page, "narrow");
  await page.close();
});

await check("a page of llama2-70b is small", async () => {
  const large = path.join(folder, "llama2-70b");
  const flags = "plan --model llama2-70b --cluster dgx-a100:8 --tp 4 --pp 4 --global-batch 128 --policy serial,ddp,megatron --out";
  run_weft(weft, ...flags.split(" "), large);
  const file = path.join(large, "report.html"), { page, noticed } = await open_page(browser, file);
  assert.ok(fs.statSync(file).size < 3e6, `${fs.statSync(file).size} bytes`);
  assert.deepEqual(noticed, []);
  await page.close();
});

await check("pages become one page", async () => {
  const { page, noticed } = await open_page(browser, make_page("both.html", plan, plan_page));
  assert.equal(await page.$$eval(".tabs button", (found) => found.length), 2);
  await page.click(".tabs button:nth-child(2)");
  assert.equal(await page.$$eval("#timeline select option", (found) => found.length), 2 * 6 + 1);
  assert.deepEqual(noticed, []);
  await page.close();
});

await check("a bench is drawn as bandwidth over size", async () => {
  const bench = path.join(folder, "bench"), sizes = "64KiB,256KiB,1MiB";
  const done = run_weft(weft, "collective", "bench", "--ranks", "2", "--algorithm", "ring,direct", "--size", sizes, "--repeat", "1", "--out", bench);
  assert.equal(done.code, 0, done.err);
  const { page, noticed } = await open_page(browser, path.join(bench, "report.html"));
  const { rows } = JSON.parse(fs.readFileSync(path.join(bench, "bench.json")));
  const points = await page.$$eval("#collectives circle", (found) => found.map((circle) => [Number(circle.getAttribute("cx")), Number(circle.getAttribute("cy"))]));
  assert.equal(points.length, rows.length);
  // Three sizes in equal steps of their logarithms; the fastest row is the highest point.
  const columns = [...new Set(points.map(([x]) => x.toFixed(1)))].map(Number).sort((a, b) => a - b);
  assert.equal(columns.length, 3);
  assert.ok(Math.abs(columns[1] - (columns[0] + columns[2]) / 2) < 0.2);
  assert.equal(await page.$$eval("#collectives title", (found) => found.length), rows.length);
  await picture(page, "bench");
  assert.deepEqual(noticed, []);
  await page.close();
});

await check("losses of a compressed run are drawn beside uncompressed ones", async () => {
  const plain = { version: "1", policies: { ddp: { step_s: 1, losses: [4, 3, 2.5, 2] } } };
  const coded = { version: "1", layout: { compress: { gradients: "int8", min_elements: 1 } },
                  policies: { ddp: { step_s: 1, losses: [4, 3.5, 3, 2.2], compression_errors: [0.01, 0.1, 0.1, 0.1] } } };
  const files = Object.entries({ plain, coded }).map(([name, content]) => {
    const file = path.join(folder, `${name}.json`);
    fs.writeFileSync(file, JSON.stringify(content));
    return file;
  });
  const { page, noticed } = await open_page(browser, make_page("losses.html", ...files));
  const curves = await page.$$eval("#losses polyline", (found) => found.map((line) => line.getAttribute("points").split(" ").map((point) => point.split(",").map(Number))));
  assert.equal(curves.length, 3);  // two of losses, one of what was held back
  const [first, second, errors] = curves;
  // Losses are linear: the second step of one run lies half way between the first and the last of the other.
  assert.ok(Math.abs(first[1][1] - (first[0][1] + first[3][1]) / 2) < 0.1);
  assert.ok(Math.abs(second[2][1] - first[1][1]) < 0.1, "equal losses lie equally high");
  assert.ok(Math.abs(first[1][0] - first[0][0] - (first[3][0] - first[0][0]) / 3) < 0.1, "steps are equally far apart");
  assert.ok(errors[0][1] > errors[1][1] && errors[1][1] === errors[3][1]);
  assert.match(await text_of(page, "#losses"), /gradients int8: \+10\.0 % at step 4 against .*uncompressed/);
  await picture(page, "losses");
  assert.deepEqual(noticed, []);
  await page.close();
});

await check("names stay data", async () => {
  const { page, noticed } = await open_page(browser, make_page("summary.html", write_hostile_summary(folder)));
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  assert.equal(await page.$$eval("main img, main b:not(li b), main script", (found) => found.length), 0);
  assert.ok((await text_of(page, "main")).includes(kHostileName));
  assert.deepEqual(noticed, []);
  await picture(page, "hostile");
  await page.close();
});

await check("a trace of a million kernels with names of markup stays alive", async () => {
  const { page, noticed, ready_ms } = await open_page(browser, make_page("trace.html", write_hostile_trace(folder, 1e6)));
  console.log(`a million kernels: usable after ${ready_ms.toFixed(0)} ms`);
  await check_keys(page);
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  assert.match(await text_of(page, "#timeline .frame > h3"), /later ones are not in this page/);
  assert.deepEqual(noticed, []);
  await page.close();
});

await check("what is no JSON makes no page", () => {
  const file = path.join(folder, "nan.json");
  fs.writeFileSync(file, `{"version": "1", "policies": {"ddp": {"step_s": NaN}}}`);
  const done = run_weft(weft, "report", file, "-o", path.join(folder, "nan.html"));
  assert.equal(done.code, 2);
  assert.match(done.err, /nan\.json/);
  assert.ok(!fs.existsSync(path.join(folder, "nan.html")));
});

// How long that takes: bench/report_page_speed.mjs.
await check("200,000 spans take no more to paint than the canvas has columns", async () => {
  const { page, noticed } = await open_page(browser, make_page("large.html", write_large_timeline(folder, 8, 200000)));
  await page.focus("#timeline canvas[tabindex]");
  const lanes = 8 * 2 + 3;  // a rank has two queues; the critical path, a map of the whole and a frame around it
  for (const zooms of [0, 6, 12]) {
    await press(page, "0");
    for (let i = 0; i < zooms; ++i) await press(page, "w");
    const { fillRect, drawImage, width } = await page.evaluate(count_of_painted);
    // A rectangle is two pixels wide or more; what is narrower is part of one image for each lane.
    assert.ok(fillRect > 0 && fillRect <= (lanes * width) / 2, `${fillRect} rectangles, ${zooms} zooms`);
    assert.ok(drawImage <= lanes, `${drawImage} images, ${zooms} zooms`);
  }
  assert.deepEqual(noticed, []);
  await page.close();
});

await browser.close();
fs.rmSync(folder, { recursive: true });
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
