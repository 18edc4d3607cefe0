// One timeline on a canvas: a row for each queue of each rank, the critical path above them. It knows how to draw itself and
// what lies at a point; what happens on a click is the section's business.
import { element, fitted, sized_context } from "./elements.js";
import { count_text } from "./formats.js";
import { paint_lane } from "./lane_painter.js";
import { lanes_of, path_lane } from "./span_lanes.js";
import { paint_axis } from "./time_axis.js";

export const kGutter = 148;
const kAxisHeight = 20, kComputeHeight = 22, kQueueHeight = 11, kRankGap = 8, kRowGap = 3, kMostHeight = 500;

export class TimelinePanel {
  constructor(timeline, view) {
    this.timeline = timeline;
    this.view = view;
    this.lanes = lanes_of(timeline);
    this.path = path_lane(timeline);
    this.matches = null;   // lanes of what was searched for
    this.selected = -1;    // a span
    this.arrows = [];      // spans that the selected one waited for
    this.rows = this.placed_rows();
    this.canvas = element("canvas", { tabindex: "0", role: "img", "aria-label": `timeline ${timeline.title}` });
    this.spacer = element("div");
    this.scroller = element("div", { class: "lanes" }, this.canvas, this.spacer);
    this.scroller.addEventListener("scroll", () => this.draw());
    const spans = count_text(timeline.spans.count);
    const cut = timeline.left_out > 0 ? `, ${count_text(timeline.left_out)} later ones are not in this page` : "";
    this.root = element("div", { class: "frame" },
      element("h3", {}, timeline.title, element("span", {}, `${spans} spans${cut}`)), this.scroller);
  }

  placed_rows() {
    const rows = [];
    let y = kAxisHeight + 4, rank = -1;
    if (this.path.count) {
      rows.push({ lane: this.path, y, height: kQueueHeight, label: "critical path", strong: false });
      y += kQueueHeight + kRankGap;
    }
    this.lanes.forEach((lane, index) => {
      const is_first = lane.rank !== rank;
      if (is_first && rank >= 0) y += kRankGap;
      rank = lane.rank;
      const height = is_first ? kComputeHeight : kQueueHeight, of = this.timeline.ranks[rank];
      const label = is_first ? of.name + (of.ranks > 1 ? ` \u00d7${of.ranks}` : "") : lane.label;
      rows.push({ lane, index, y, height, label, strong: is_first });
      y += height + kRowGap;
    });
    this.content_height = y + 6;
    return rows;
  }

  // What the painter and the axis take.
  frame() {
    return { begin: this.view.begin, end: this.view.end, left: kGutter, width: Math.max(50, this.width - kGutter - 8),
             label: (item) => this.item_name(item) };
  }
  item_name(item) {
    if (item < 0) return "waits";
    return this.timeline.names[this.timeline.operations.name[this.timeline.spans.operation[item]]] ?? "";
  }
  x_of(time, frame) {
    return frame.left + ((time - frame.begin) * frame.width) / (frame.end - frame.begin);
  }

  draw(colours = this.colours) {
    this.colours = colours;
    this.width = this.scroller.clientWidth;
    if (!this.width) return;
    const height = Math.min(this.content_height, kMostHeight), offset = this.scroller.scrollTop;
    this.spacer.style.height = `${Math.max(0, this.content_height - height)}px`;
    const context = sized_context(this.canvas, this.width, height), frame = this.frame();
    context.clearRect(0, 0, this.width, height);
    context.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    paint_axis(context, frame, 0, height, colours);
    context.save();
    context.beginPath();
    context.rect(0, kAxisHeight, this.width, height - kAxisHeight);
    context.clip();
    for (const row of this.rows) {
      const top = row.y - offset;
      if (top + row.height < kAxisHeight || top > height) continue;
      this.draw_row(context, row, top, frame, colours);
    }
    this.draw_end(context, frame, height, colours);
    context.beginPath();
    context.rect(frame.left, 0, frame.width, height);
    context.clip();
    this.draw_selection(context, frame, offset, colours);
    context.restore();
  }

  draw_row(context, row, top, frame, colours) {
    context.font = `${row.strong ? 11 : 10}px system-ui, 'DejaVu Sans', sans-serif`;
    context.fillStyle = row.strong ? colours.ink : colours.muted;
    context.textAlign = "right";
    context.textBaseline = "middle";
    context.fillText(fitted(context, row.label, kGutter - 20), kGutter - 10, top + row.height / 2 + 0.5);
    context.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    context.textAlign = "left";
    context.fillStyle = colours.panel;
    context.fillRect(frame.left, top, frame.width, row.height);
    context.globalAlpha = this.matches ? 0.22 : 1;
    paint_lane(context, row.lane, frame, top, row.height, colours);
    context.globalAlpha = 1;
    const matching = this.matches?.[row.index];
    if (matching?.count) paint_lane(context, matching, frame, top, row.height, colours);
  }

  // Beyond the end of the shorter of two timelines there is nothing.
  draw_end(context, frame, height, colours) {
    const x = this.x_of(this.timeline.length, frame), right = frame.left + frame.width;
    if (x >= right) return;
    context.fillStyle = colours.paper;
    context.fillRect(Math.max(x, frame.left), kAxisHeight, right - x, height);
    context.fillStyle = colours.ink;
    context.fillRect(Math.max(x, frame.left), kAxisHeight, 1, height);
  }

  row_of_span(span) {
    return this.rows.find((row) => {
      if (row.lane === this.path || row.lane.rank !== this.timeline.operations.rank[this.timeline.spans.operation[span]]) return false;
      const { start, end } = this.timeline.spans;
      for (let i = row.lane.first_ending_after(start[span]); i < row.lane.count && row.lane.start[i] < end[span]; ++i) {
        if (row.lane.item[i] === span) return true;
      }
      return false;
    });
  }

  draw_selection(context, frame, offset, colours) {
    const row = this.selected >= 0 ? this.row_of_span(this.selected) : null;
    if (!row) return;
    const { start, end } = this.timeline.spans;
    const x = this.x_of(start[this.selected], frame), width = Math.max(2, this.x_of(end[this.selected], frame) - x);
    context.strokeStyle = colours.select;
    context.lineWidth = 2;
    context.strokeRect(x, row.y - offset - 1, width, row.height + 2);
    context.lineWidth = 1.25;
    for (const span of this.arrows) {
      const from = this.row_of_span(span);
      if (from) this.draw_arrow(context, this.x_of(end[span], frame), from.y + from.height / 2 - offset, x, row.y + row.height / 2 - offset);
    }
    context.lineWidth = 1;
  }

  draw_arrow(context, from_x, from_y, to_x, to_y) {
    const bend = Math.max(14, Math.abs(to_x - from_x) / 2);
    context.beginPath();
    context.moveTo(from_x, from_y);
    context.bezierCurveTo(from_x + bend, from_y, to_x - bend, to_y, to_x, to_y);
    context.moveTo(to_x - 5, to_y - 3);
    context.lineTo(to_x, to_y);
    context.lineTo(to_x - 5, to_y + 3);
    context.stroke();
  }

  // The item at a point of the canvas, the row and the time; null outside the rows.
  at(x, y) {
    const frame = this.frame(), inner = y + this.scroller.scrollTop;
    if (x < frame.left || x > frame.left + frame.width) return null;
    const time = frame.begin + ((x - frame.left) * (frame.end - frame.begin)) / frame.width;
    const row = this.rows.find((r) => inner >= r.y - 1 && inner <= r.y + r.height + 1);
    if (!row) return { time, item: null };
    const reach = (2 * (frame.end - frame.begin)) / frame.width;
    let piece = row.lane.piece_at(time);
    for (const near of [-reach, reach]) if (piece < 0) piece = row.lane.piece_at(time + near);
    return { time, row, item: piece < 0 ? null : row.lane.item[piece] };
  }

  // Marks what was found; null marks nothing.
  mark(spans) {
    const found = spans && new Set(spans);
    this.matches = found && this.lanes.map((lane) => lane.filtered((span) => found.has(span)));
  }

  scroll_to_span(span) {
    const row = this.row_of_span(span), top = this.scroller.scrollTop, height = this.scroller.clientHeight;
    if (row && (row.y < top + kAxisHeight || row.y + row.height > top + height)) {
      this.scroller.scrollTop = Math.max(0, row.y - height / 2);
    }
  }
}
