// Files that the tests of the page are made from: a plan of ours, a large timeline, and what a stranger might send.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import zlib from "node:zlib";

export const kHostileName = `</script><img src=x onerror="window.hacked=1"><b>bold</b>\u2028'"`;

export function run_weft(weft, ...words) {
  const done = spawnSync(weft, words, { encoding: "utf8", maxBuffer: 1 << 28 });
  return { code: done.status, out: done.stdout, err: done.stderr };
}

// The timelines of a page as another reader unpacks them.
export function timelines_of(file) {
  const text = fs.readFileSync(file, "utf8");
  return [...text.matchAll(/class="weft-timeline">([^<]*)</g)].map(([, packed]) =>
    JSON.parse(zlib.gunzipSync(Buffer.from(packed, "base64")).toString("utf8")));
}

export function summed(differences) {
  let sum = 0;
  return differences.map((difference) => (sum += difference));
}

// Each rank computes for 80 ns and communicates for 60 ns of every 100 ns, from 50 ns on: 20 ns of them are exposed.
export function write_large_timeline(folder, ranks, spans) {
  const steps = spans / ranks / 2, names = ["matmul", "forward", "reduce", "dp"], operations = [], rows = [];
  for (let rank = 0; rank < ranks; ++rank) {
    for (let i = 0; i < steps; ++i) {
      operations.push(`{"name":0,"phase":1,"rank":${rank},"queue":0,"micro_batch":0,"alone":80}`,
        `{"name":2,"phase":1,"rank":${rank},"queue":1,"alone":60,"traffic":"dp_grad","bytes":1024,"group":3}`);
      const at = 100 * i, first = operations.length - 2;
      rows.push(`[${first},0,${at},${at},${at},${at + 80}]`, `[${first + 1},0,${at + 50},${at + 50},${at + 50},${at + 100}]`);
    }
  }
  const listed = Array.from({ length: ranks }, (_, r) => `{"name":"rank ${r}","rank":${r},"queues":["compute","dp"]}`);
  const file = path.join(folder, "large.json");
  fs.writeFileSync(file, `{"weft_timeline":1,"timeline":"measured","about":{"policy":"large"},"dependencies":false,
"steady":{"first":0,"begin":0,"period":${100 * steps},"periods":1},"names":${JSON.stringify(names)},
"ranks":[${listed.join(",\n")}],"operations":[${operations.join(",\n")}],"spans":[${rows.join(",\n")}]}`);
  return file;
}

// A trace as PyTorch writes it, with a million kernels whose names are markup.
export function write_hostile_trace(folder, kernels) {
  const file = path.join(folder, "hostile.json"), out = fs.openSync(file, "w");
  fs.writeSync(out, `{"distributedInfo":{"rank":0,"world_size":1},"traceEvents":[`);
  const name = JSON.stringify(kHostileName);
  for (let i = 0; i < kernels; i += 10000) {
    const lines = [];
    for (let k = i; k < Math.min(kernels, i + 10000); ++k) {
      lines.push(`${k ? "," : ""}{"ph":"X","cat":"kernel","name":${name},"pid":0,"tid":7,"ts":${k},"dur":1,"args":{"stream":7,"device":0}}`);
    }
    fs.writeSync(out, lines.join("\n"));
  }
  fs.writeSync(out, "]}");
  fs.closeSync(out);
  return file;
}

// What --json might have printed, if its writer had lost his mind.
export function write_hostile_summary(folder) {
  const file = path.join(folder, "summary.json");
  const policy = { step_s: 1, compute_s: null, slowdown_s: "NaN", exposed_comm_s: -5, exposed_by_kind: null, bubble_s: 1e308,
    memory: [{ stage: kHostileName, bytes: null, device_bytes: "x", terms: { [kHostileName]: 3 } }], explanation: { largest: [{}] } };
  const rows = [{ keys: { tp: kHostileName, pp: "1" }, step_s: 1, memory_peak_bytes: 1 }, { keys: { tp: "2", pp: "2" }, step_s: null },
    { keys: { tp: "2", pp: "1" }, step_s: 2, memory_peak_bytes: 3 }];
  fs.writeFileSync(file, JSON.stringify({ version: kHostileName, model: { name: kHostileName }, bound_s: -1, bound_explanation: kHostileName,
    policies: { [kHostileName]: policy, none: {} }, best: kHostileName, sweep: { rows, infeasible: [{ keys: null, reason: kHostileName }] } }));
  return file;
}
