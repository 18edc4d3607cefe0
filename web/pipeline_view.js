// The pipeline as papers draw it: a row for each stage, a box for each pass of a micro-batch, with its number.
import { element, section, sized_context } from "./elements.js";
import { kGutter } from "./timeline_panel.js";
import { paint_axis } from "./time_axis.js";

const kRowHeight = 26, kRowGap = 4, kAxisHeight = 20;
const kForward = 0, kBackward = 1, kWeights = 2, kUpdate = 3;

// Consecutive compute of one micro-batch in one direction is a box. A box of weight gradients alone is one of its own.
export function pipeline_boxes(timeline) {
  const { operations, spans, names } = timeline, rows = timeline.ranks.map(() => []);
  for (let i = 0; i < spans.count; ++i) {
    const o = spans.operation[i];
    if (operations.traffic[o] >= 0) continue;
    const phase = names[operations.phase[o]], batch = operations.micro_batch[o];
    const direction = batch < 0 ? kUpdate : phase === "forward" ? kForward : kBackward;
    const row = rows[operations.rank[o]], last = row[row.length - 1];
    if (last && last.batch === batch && last.direction === direction && last.iteration === spans.iteration[i]) {
      last.end = Math.max(last.end, spans.end[i]);
      last.weights_only &&= phase === "weight_grad";
    } else {
      row.push({ batch, direction, iteration: spans.iteration[i], start: spans.start[i], end: spans.end[i],
                 weights_only: phase === "weight_grad" });
    }
  }
  for (const box of rows.flat()) if (box.direction === kBackward && box.weights_only) box.direction = kWeights;
  return rows;
}

// Whether there is a pipeline to draw: several ranks, and micro-batches.
export function has_pipeline(timeline) {
  return timeline.ranks.length > 1 && timeline.operations.micro_batch.some((batch) => batch > 0);
}

export class PipelineView {
  constructor(view, colours) {
    Object.assign(this, { view, colours, timeline: null });
    this.canvas = element("canvas", { role: "img", "aria-label": "pipeline: stages over time" });
    this.frame = element("div", { class: "frame" }, this.canvas);
    const legend = [["forward", "forward"], ["input-grad", "backward"], ["weight-grad", "weight gradients alone"], ["optimizer", "update"]];
    this.root = section("pipeline", "Pipeline",
      "Stages over time; a number is a micro-batch, and every second one is lighter. It shows the range that the timeline shows.",
      this.frame, element("ul", { class: "legend" }, legend.map(([colour, words]) =>
        element("li", {}, element("i", { style: { background: `var(--${colour})` } }), words))));
    this.root.hidden = true;
    view.on_change(() => this.draw());
    window.addEventListener("resize", () => this.draw());
  }

  show(timeline) {
    this.timeline = timeline;
    this.root.hidden = !has_pipeline(timeline);
    this.rows = this.root.hidden ? [] : pipeline_boxes(timeline);
    this.draw();
  }

  draw() {
    const width = this.frame.clientWidth;
    if (this.root.hidden || !width) return;
    const colours = this.colours(), height = kAxisHeight + this.rows.length * (kRowHeight + kRowGap) + 6;
    const context = sized_context(this.canvas, width, height);
    const frame = { begin: this.view.begin, end: this.view.end, left: kGutter, width: width - kGutter - 8 };
    context.clearRect(0, 0, width, height);
    context.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    paint_axis(context, frame, 0, height, colours);
    this.rows.forEach((boxes, i) => {
      const top = kAxisHeight + 2 + i * (kRowHeight + kRowGap), { name, ranks } = this.timeline.ranks[i];
      context.fillStyle = colours.ink;
      context.textAlign = "right";
      context.fillText(name + (ranks > 1 ? ` \u00d7${ranks}` : ""), kGutter - 10, top + kRowHeight / 2);
      this.draw_boxes(context, boxes, frame, top, colours);
    });
  }

  draw_boxes(context, boxes, frame, top, colours) {
    const scale = frame.width / (frame.end - frame.begin);
    const fill = [colours.categories[0], colours.categories[1], colours.categories[2], colours.categories[4]];
    context.textAlign = "center";
    for (const box of boxes) {
      const from = Math.max(0, (box.start - frame.begin) * scale), to = Math.min(frame.width, (box.end - frame.begin) * scale);
      if (to <= 0 || from >= frame.width) continue;
      context.fillStyle = fill[box.direction];
      context.globalAlpha = box.batch % 2 === 1 ? 0.72 : 1;
      context.fillRect(frame.left + from, top, Math.max(0.5, to - from - 0.75), kRowHeight);
      context.globalAlpha = 1;
      if (box.batch < 0 || to - from < 4 + 6 * String(box.batch).length) continue;
      context.fillStyle = box.direction === kForward ? "#10151a" : colours.paper;
      context.fillText(String(box.batch), frame.left + (from + to) / 2, top + kRowHeight / 2 + 0.5);
    }
  }
}
