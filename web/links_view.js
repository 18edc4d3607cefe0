// What the links carry over time: a panel for each group, on the axis of the timeline.
import { element, section, sized_context } from "./elements.js";
import { traffic_of_groups } from "./group_traffic.js";
import { kGutter } from "./timeline_panel.js";
import { paint_axis } from "./time_axis.js";

const kPanelHeight = 54, kPanelGap = 8, kTop = 22, kPixelsOfShare = 3, kMostPanels = 8;

export class LinksView {
  constructor(view, colours) {
    Object.assign(this, { view, colours, groups: [] });
    this.canvas = element("canvas", { role: "img", "aria-label": "bytes sent over time, by group" });
    this.frame = element("div", { class: "frame" }, this.canvas);
    this.root = section("links", "Links over time", "What a mean rank sends, by the group of the transfers, in GB/s. It shows the range that the timeline shows.", this.frame);
    this.root.hidden = true;
    view.on_change(() => this.draw());
    window.addEventListener("resize", () => this.draw());
  }

  show(timeline) {
    this.groups = traffic_of_groups(timeline).slice(0, kMostPanels);
    this.root.hidden = this.groups.length === 0;
    this.draw();
  }

  draw() {
    const width = this.frame.clientWidth;
    if (this.root.hidden || !width) return;
    const colours = this.colours(), height = kTop + this.groups.length * (kPanelHeight + kPanelGap);
    const context = sized_context(this.canvas, width, height);
    const frame = { begin: this.view.begin, end: this.view.end, left: kGutter, width: Math.max(1, width - kGutter - 8) };
    context.clearRect(0, 0, width, height);
    context.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    paint_axis(context, frame, 0, height, colours);
    this.groups.forEach((group, i) => this.draw_group(context, group, frame, kTop + i * (kPanelHeight + kPanelGap), colours));
  }

  draw_group(context, group, frame, top, colours) {
    const shares = Math.ceil(frame.width / kPixelsOfShare), rates = group.rates(frame.begin, frame.end, shares);
    const most = rates.reduce((a, b) => Math.max(a, b), 1e-9), step = frame.width / shares;
    context.textAlign = "right";
    context.fillStyle = colours.ink;
    context.fillText(group.group, kGutter - 10, top + kPanelHeight / 2 - 7);
    context.fillStyle = colours.muted;
    context.fillText(`up to ${most.toPrecision(3)}`, kGutter - 10, top + kPanelHeight / 2 + 7);  // bytes a nanosecond are GB/s
    context.fillStyle = colours.categories[6];
    context.beginPath();
    context.moveTo(frame.left, top + kPanelHeight);
    rates.forEach((rate, share) => {
      const y = top + kPanelHeight * (1 - rate / most);
      context.lineTo(frame.left + share * step, y);
      context.lineTo(frame.left + (share + 1) * step, y);
    });
    context.lineTo(frame.left + frame.width, top + kPanelHeight);
    context.fill();
  }
}
