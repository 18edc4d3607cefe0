// Reads what the page carries: one JSON object, and timelines as compressed columns (docs/report.md).

export function read_page_data() {
  return JSON.parse(document.getElementById("weft-data").textContent);
}

// Unpacks the n-th timeline of the page.
export async function read_timeline(n) {
  const packed = document.querySelectorAll("script.weft-timeline")[n].textContent;
  const letters = atob(packed), bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; ++i) bytes[i] = letters.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return unpacked_timeline(await new Response(stream).json());
}

function summed(differences, Type) {
  const values = new Type(differences.length);
  let sum = 0;
  for (let i = 0; i < differences.length; ++i) {
    sum += differences[i];
    values[i] = sum;
  }
  return values;
}

// Columns become typed arrays; times count in nanoseconds from the begin of the window.
export function unpacked_timeline(packed) {
  const { operations: o, spans: s, exposed: e, path: p, waits: w } = packed;
  const operations = {
    count: o.name.length,
    name: summed(o.name, Int32Array), phase: Int32Array.from(o.phase), rank: Int32Array.from(o.rank),
    queue: Int32Array.from(o.queue), micro_batch: Int32Array.from(o.micro_batch), traffic: Int8Array.from(o.traffic),
    alone: Float64Array.from(o.alone), bytes: Float64Array.from(o.bytes), collective: Int32Array.from(o.collective),
    group: Int32Array.from(o.group), group_size: Int32Array.from(o.group_size), transfer: summed(o.transfer, Int32Array),
  };
  const start = summed(s.start, Float64Array), end = start.map((from, i) => from + s.length[i]);
  const spans = {
    count: start.length, operation: summed(s.operation, Int32Array), iteration: summed(s.iteration, Int32Array), start, end,
    issued: start.map((from, i) => from - s.issued[i]), ready: start.map((from, i) => from - s.ready[i]),
  };
  const exposed_begin = summed(e.begin, Float64Array);
  const path_begin = summed(p.begin, Float64Array);
  return {
    ...packed, operations, spans,
    exposed: { count: exposed_begin.length, rank: e.rank, traffic: e.traffic, begin: exposed_begin,
               end: exposed_begin.map((from, i) => from + e.length[i]) },
    path: { count: path_begin.length, operation: summed(p.operation, Int32Array), iteration: summed(p.iteration, Int32Array),
            begin: path_begin, end: path_begin.map((from, i) => from + p.length[i]) },
    waits: w ? unpacked_waits(w, operations.count) : null,
    memory: packed.memory.map((m) => ({ at: summed(m.at, Float64Array), bytes: summed(m.bytes, Float64Array) })),
    span_of: index_of_spans(spans, operations.count),
  };
}

function unpacked_waits(waits, operation_count) {
  const begin = new Int32Array(operation_count + 1);
  for (let i = 0; i < operation_count; ++i) begin[i + 1] = begin[i] + waits.count[i];
  const operation = new Int32Array(waits.back.length);
  for (let i = 0; i < operation_count; ++i) {
    for (let d = begin[i]; d < begin[i + 1]; ++d) operation[d] = i - waits.back[d];
  }
  return { begin, operation, distance: waits.distance, kind: waits.kind };
}

// Finds the execution of an operation in an iteration; undefined where the window does not show it.
function index_of_spans(spans, operation_count) {
  const by_iteration = new Map();
  for (let i = 0; i < spans.count; ++i) {
    let found = by_iteration.get(spans.iteration[i]);
    if (!found) by_iteration.set(spans.iteration[i], (found = new Int32Array(operation_count).fill(-1)));
    found[spans.operation[i]] = i;
  }
  return (operation, iteration) => {
    const span = by_iteration.get(iteration)?.[operation];
    return span >= 0 ? span : undefined;
  };
}
