// A real Chromium for the tests of the page, and what it noticed. Exits with 77, which ctest counts as skipped, where there is
// no Chromium or no puppeteer-core (tools/setup.sh --with web installs both).
import { spawnSync } from "node:child_process";
import { createRequire } from "node:module";
import path from "node:path";
import process from "node:process";

function skip(reason) {
  console.log(`skipped: ${reason}`);
  process.exit(77);
}

function chromium_path() {
  const named = process.env.WEFT_CHROMIUM;
  if (named) return named;
  for (const name of ["chromium", "chromium-browser", "google-chrome"]) {
    const found = spawnSync("sh", ["-c", `command -v ${name}`], { encoding: "utf8" }).stdout.trim();
    if (found) return found;
  }
  return skip("there is no chromium; tools/setup.sh --with web installs it");
}

// `modules` is the folder that holds node_modules.
export async function start_browser(modules) {
  let puppeteer;
  try {
    puppeteer = createRequire(path.join(path.resolve(modules), "here.js"))("puppeteer-core");
  } catch {
    skip(`there is no puppeteer-core in ${modules}; tools/setup.sh --with web installs it`);
  }
  const executablePath = chromium_path();
  return (puppeteer.default ?? puppeteer).launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
}

// Opens a file and waits until its timelines can be used. `noticed` collects errors and requests for anything else.
export async function open_page(browser, file, { dark = false } = {}) {
  const page = await browser.newPage(), noticed = [];
  await page.setViewport({ width: 1360, height: 900 });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: dark ? "dark" : "light" }]);
  page.on("console", (message) => ["error", "warn"].includes(message.type()) && noticed.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => noticed.push(`error: ${error.message}`));
  page.on("dialog", (dialog) => {
    noticed.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on("request", (request) => {
    const url = request.url();
    if (url !== `file://${file}` && !url.startsWith("blob:")) noticed.push(`request: ${url.slice(0, 100)}`);
  });
  await page.goto(`file://${file}`);
  await page.waitForFunction(() => document.documentElement.dataset.ready === "true", { timeout: 60000 });
  const ready_ms = await page.evaluate(() => performance.now());
  await page.waitForFunction(() => document.documentElement.dataset.complete === "true", { timeout: 60000 });
  return { page, noticed, ready_ms };
}
