// Memory over time: a curve for each rank, on the axis of the timeline.
import { element, section, sized_context } from "./elements.js";
import { bytes_text } from "./formats.js";
import { kGutter } from "./timeline_panel.js";
import { paint_axis } from "./time_axis.js";

const kHeight = 190, kTop = 22, kColours = 4, kMostCurves = 4;  // more curves hide each other

export class MemoryCurve {
  constructor(view, colours) {
    Object.assign(this, { view, colours, timeline: null });
    this.canvas = element("canvas", { role: "img", "aria-label": "memory over time" });
    this.frame = element("div", { class: "frame" }, this.canvas);
    this.root = section("memory-time", "Memory over time", "Bytes that hold something, by stage. It shows the range that the timeline shows.",
      this.frame, (this.legend = element("ul", { class: "legend" })));
    this.root.hidden = true;
    view.on_change(() => this.draw());
    window.addEventListener("resize", () => this.draw());
  }

  show(timeline) {
    this.timeline = timeline;
    this.curves = timeline.memory.map((samples, rank) => ({ samples, name: timeline.ranks[rank]?.name ?? "" }))
      .filter(({ samples }) => samples.at.length > 1).slice(0, kMostCurves);
    this.root.hidden = this.curves.length === 0;
    this.legend.replaceChildren(...this.curves.map(({ name }, i) =>
      element("li", {}, element("i", { style: { background: `var(--memory-${i % kColours})` } }), name)));
    this.draw();
  }

  draw() {
    const width = this.frame.clientWidth;
    if (this.root.hidden || !width) return;
    const colours = this.colours(), context = sized_context(this.canvas, width, kHeight);
    const frame = { begin: this.view.begin, end: this.view.end, left: kGutter, width: width - kGutter - 8 };
    const most = Math.max(...this.curves.map(({ samples }) => samples.bytes.reduce((a, b) => Math.max(a, b), 1)));
    const y = (bytes) => kHeight - 8 - (bytes / most) * (kHeight - kTop - 14);
    context.clearRect(0, 0, width, kHeight);
    context.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    paint_axis(context, frame, 0, kHeight, colours);
    context.textAlign = "right";
    context.fillStyle = colours.muted;
    for (const share of [0, 0.5, 1]) context.fillText(bytes_text(share * most), kGutter - 10, y(share * most));
    context.save();
    context.beginPath();
    context.rect(frame.left, 0, frame.width, kHeight);
    context.clip();
    this.curves.forEach((curve, i) => this.draw_curve(context, curve, frame, y, i, colours));
    context.restore();
  }

  draw_curve(context, { samples }, frame, y, i, colours) {
    const scale = frame.width / (frame.end - frame.begin);
    context.strokeStyle = colours.memory[i % colours.memory.length];
    context.lineWidth = 1.5;
    context.beginPath();
    for (let k = 0; k < samples.at.length; ++k) {
      const x = frame.left + (samples.at[k] - frame.begin) * scale;
      if (k > 0) context.lineTo(x, y(samples.bytes[k - 1]));
      context.lineTo(x, y(samples.bytes[k]));
    }
    context.stroke();
    context.lineWidth = 1;
  }
}
