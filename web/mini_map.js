// The whole timeline in a strip: how much of each instant is computed and exposed, over all ranks, and which range is shown.
import { element, sized_context } from "./elements.js";
import { kExposed, kHidden } from "./palette.js";
import { kGutter } from "./timeline_panel.js";

const kHeight = 34;

export class MiniMap {
  constructor(view) {
    this.view = view;
    this.canvas = element("canvas", { class: "mini", role: "img", "aria-label": "overview; drag to move" });
    this.root = element("div", { class: "frame" }, this.canvas);
    let dragging = false;
    const move = (event) => {
      const box = this.canvas.getBoundingClientRect(), width = box.width - kGutter - 8;
      const middle = ((event.clientX - box.left - kGutter) / width) * this.view.length, half = (this.view.end - this.view.begin) / 2;
      this.view.set(middle - half, middle + half);
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      dragging = true;
      this.canvas.setPointerCapture(event.pointerId);
      move(event);
    });
    this.canvas.addEventListener("pointermove", (event) => dragging && move(event));
    this.canvas.addEventListener("pointerup", () => (dragging = false));
  }

  // Adds up the lanes of the panel once for each width.
  shares(panel, columns) {
    if (this.cached?.panel === panel && this.cached.columns === columns && this.cached.length === this.view.length) return this.cached;
    const compute = new Float64Array(columns), exposed = new Float64Array(columns), step = this.view.length / columns;
    const firsts = panel.rows.filter((row) => row.strong).map((row) => row.lane);
    for (const lane of firsts) {
      for (let i = 0; i < lane.count; ++i) {
        const target = lane.category[i] === kExposed ? exposed : lane.category[i] === kHidden ? null : compute;
        if (!target) continue;
        const first = Math.max(0, Math.floor(lane.start[i] / step)), last = Math.min(columns - 1, Math.floor(lane.end[i] / step));
        for (let c = first; c <= last; ++c) {
          target[c] += Math.max(0, Math.min(lane.end[i], (c + 1) * step) - Math.max(lane.start[i], c * step)) / (step * firsts.length);
        }
      }
    }
    return (this.cached = { panel, columns, length: this.view.length, compute, exposed });
  }

  draw(panel, colours) {
    const width = this.root.clientWidth;
    if (!width) return;
    const context = sized_context(this.canvas, width, kHeight), columns = Math.max(1, Math.floor(width - kGutter - 8));
    const { compute, exposed } = this.shares(panel, columns), bottom = kHeight - 4, height = kHeight - 8;
    context.clearRect(0, 0, width, kHeight);
    for (let c = 0; c < columns; ++c) {
      context.fillStyle = colours.categories[0];
      context.fillRect(kGutter + c, bottom - compute[c] * height, 1, compute[c] * height);
      context.fillStyle = colours.accent;
      context.fillRect(kGutter + c, bottom - (compute[c] + exposed[c]) * height, 1, exposed[c] * height);
    }
    const from = kGutter + (this.view.begin / this.view.length) * columns, to = kGutter + (this.view.end / this.view.length) * columns;
    context.fillStyle = colours.paper;
    context.globalAlpha = 0.65;
    context.fillRect(kGutter, 0, from - kGutter, kHeight);
    context.fillRect(to, 0, kGutter + columns - to, kHeight);
    context.globalAlpha = 1;
    context.strokeStyle = colours.ink;
    context.strokeRect(from + 0.5, 1.5, Math.max(2, to - from) - 1, kHeight - 3);
    context.fillStyle = colours.muted;
    context.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    context.textAlign = "right";
    context.textBaseline = "middle";
    context.fillText("all ranks", kGutter - 10, kHeight / 2);
  }
}
