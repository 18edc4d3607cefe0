// The rows of a timeline. A lane holds pieces that do not overlap, by start; where spans of a queue overlap, it has several
// lanes. A transfer is cut into pieces that are hidden and pieces that are exposed. Sums over the pieces make a column of
// pixels as cheap as a single piece, however many spans it covers.
import { kCategories, kExposed, kHidden, category_of_phase } from "./palette.js";

const kMaxLanesOfQueue = 4;

export class Lane {
  constructor(rank, queue, label) {
    Object.assign(this, { rank, queue, label, start: [], end: [], category: [], item: [] });
  }
  // `item` is a span, or -1 - the exposed stretch.
  add(start, end, category, item) {
    this.start.push(start);
    this.end.push(end);
    this.category.push(category);
    this.item.push(item);
  }
  get last_end() {
    return this.end.length ? this.end[this.end.length - 1] : -Infinity;
  }
  // Sorts the pieces and adds them up; afterwards the lane does not change.
  finish() {
    this.sort();
    this.start = Float64Array.from(this.start);
    this.end = Float64Array.from(this.end);
    this.category = Uint8Array.from(this.category);
    this.item = Int32Array.from(this.item);
    for (let i = 1; i < this.count; ++i) {  // where a queue needed more lanes than it has
      this.start[i] = Math.max(this.start[i], this.end[i - 1]);
      this.end[i] = Math.max(this.end[i], this.start[i]);
    }
    this.sums = kCategories.map(() => null);
    for (const category of new Set(this.category)) {
      const sum = (this.sums[category] = new Float64Array(this.count + 1));
      for (let i = 0; i < this.count; ++i) {
        sum[i + 1] = sum[i] + (this.category[i] === category ? this.end[i] - this.start[i] : 0);
      }
    }
    return this;
  }
  sort() {
    if (!this.start.some((start, i) => i > 0 && start < this.start[i - 1])) return;
    const order = this.start.map((_, i) => i).sort((a, b) => this.start[a] - this.start[b] || a - b);
    for (const column of ["start", "end", "category", "item"]) {
      const values = this[column];
      this[column] = order.map((i) => values[i]);
    }
  }
  get count() {
    return this.start.length;
  }
  // The first piece from `from` on that ends after the time: a search with growing steps, then by halves.
  first_ending_after(time, from = 0) {
    let low = from, step = 1;
    while (low + step < this.count && this.end[low + step] <= time) {
      low += step;
      step *= 2;
    }
    let high = Math.min(this.count, low + step);
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.end[middle] > time) high = middle;
      else low = middle + 1;
    }
    return low;
  }
  piece_at(time) {
    const i = this.first_ending_after(time);
    return i < this.count && this.start[i] <= time ? i : -1;
  }
  // The pieces whose item passes, as a lane of its own.
  filtered(passes) {
    const lane = new Lane(this.rank, this.queue, this.label);
    for (let i = 0; i < this.count; ++i) {
      if (this.item[i] >= 0 && passes(this.item[i])) lane.add(this.start[i], this.end[i], this.category[i], this.item[i]);
    }
    return lane.finish();
  }
}

// Exposed stretches by rank and kind of traffic, ascending.
function stretches_by_rank(timeline) {
  const lists = timeline.ranks.map(() => new Map());
  const { exposed } = timeline;
  for (let i = 0; i < exposed.count; ++i) {
    const of_rank = lists[exposed.rank[i]];
    if (!of_rank.has(exposed.traffic[i])) of_rank.set(exposed.traffic[i], []);
    of_rank.get(exposed.traffic[i]).push(i);
  }
  return lists;
}

// Cuts a transfer where it begins or ends to be exposed.
function add_transfer(lane, timeline, stretches, cursor, span) {
  const { exposed, spans } = timeline, end = spans.end[span];
  let at = spans.start[span];
  while (cursor.at < stretches.length && exposed.end[stretches[cursor.at]] <= at) ++cursor.at;
  for (let i = cursor.at; i < stretches.length && exposed.begin[stretches[i]] < end; ++i) {
    const from = Math.max(at, exposed.begin[stretches[i]]), to = Math.min(end, exposed.end[stretches[i]]);
    if (from > at) lane.add(at, from, kHidden, span);
    if (to > from) lane.add(from, to, kExposed, span);
    at = Math.max(at, to);
  }
  if (end > at) lane.add(at, end, kHidden, span);
}

function lane_for(lanes, first, start, rank, queue, label) {
  let at = first;
  while (at < lanes.length && lanes[at].last_end > start) ++at;
  if (at === lanes.length && lanes.length - first < kMaxLanesOfQueue) lanes.push(new Lane(rank, queue, at === first ? label : ""));
  return lanes[Math.min(at, lanes.length - 1)];
}

// Spans come by rank, queue and start (docs/report.md).
export function lanes_of(timeline) {
  const { operations, spans, names } = timeline, lanes = [], stretches = stretches_by_rank(timeline);
  const category = names.map(category_of_phase);
  let first = 0, current = "", cursors = new Map();
  for (let i = 0; i < spans.count; ++i) {
    const o = spans.operation[i], rank = operations.rank[o], queue = operations.queue[o], traffic = operations.traffic[o];
    if (`${rank}.${queue}` !== current) {
      current = `${rank}.${queue}`;
      first = lanes.length;
      cursors = new Map();
    }
    const lane = lane_for(lanes, first, spans.start[i], rank, queue, timeline.ranks[rank].queues[queue]);
    if (traffic < 0) {
      lane.add(spans.start[i], spans.end[i], category[operations.phase[o]], i);
      continue;
    }
    if (!cursors.has(traffic)) cursors.set(traffic, { at: 0 });
    lane.has_transfers = true;
    add_transfer(lane, timeline, stretches[rank].get(traffic) ?? [], cursors.get(traffic), i);
  }
  add_waiting(lanes, timeline);
  return lanes.map((lane) => lane.finish());
}

// In the first lane of a rank, if only computation is in it, exposed time is drawn where nothing computes.
function add_waiting(lanes, timeline) {
  const first = new Map();
  for (const lane of lanes) if (!first.has(lane.rank)) first.set(lane.rank, lane);
  const { exposed } = timeline;
  for (let i = 0; i < exposed.count; ++i) {
    const lane = first.get(exposed.rank[i]);
    if (lane?.queue === 0 && !lane.has_transfers) lane.add(exposed.begin[i], exposed.end[i], kExposed, -1 - i);
  }
}

export function path_lane(timeline) {
  const lane = new Lane(-1, -1, "critical path"), { path, operations, names } = timeline;
  for (let i = 0; i < path.count; ++i) {
    const o = path.operation[i], span = timeline.span_of(o, path.iteration[i]);
    if (span === undefined) continue;
    const category = operations.traffic[o] < 0 ? category_of_phase(names[operations.phase[o]]) : kExposed;
    lane.add(path.begin[i], path.end[i], category, span);
  }
  return lane.finish();
}
