// A ruler of time, and the range of it that is looked at, which several panels share.
import { unit_of } from "./formats.js";

export class TimeView {
  // `length` is the longest of the timelines that are shown, in nanoseconds.
  constructor(length) {
    this.length = Math.max(1, length);
    this.begin = 0;
    this.end = this.length;
    this.listeners = [];
  }
  on_change(listener) {
    this.listeners.push(listener);
  }
  // Keeps the range within the timeline, and at least ten nanoseconds long.
  set(begin, end) {
    const span = Math.min(this.length, Math.max(10, end - begin));
    this.begin = Math.min(Math.max(0, begin), this.length - span);
    this.end = this.begin + span;
    for (const listener of this.listeners) listener();
  }
  set_length(length) {
    this.length = Math.max(1, length);
    this.set(0, this.length);
  }
  reset() {
    this.set(0, this.length);
  }
  // A factor below 1 shows less; `anchor` is the share of the width that stays in place.
  zoom(factor, anchor = 0.5) {
    const span = this.end - this.begin, wanted = Math.min(this.length, Math.max(10, span * factor));
    const begin = this.begin + (span - wanted) * anchor;
    this.set(begin, begin + wanted);
  }
  pan(share) {
    const moved = share * (this.end - this.begin);
    this.set(this.begin + moved, this.end + moved);
  }
  // Shows a stretch in the middle third.
  show(begin, end) {
    const margin = Math.max(end - begin, 10);
    this.set(begin - margin, end + margin);
  }
}

// Times of 1, 2 or 5 times a power of ten, about one for each 110 pixels.
export function ticks(begin, end, width) {
  const wanted = ((end - begin) * 110) / Math.max(110, width);
  const power = 10 ** Math.floor(Math.log10(wanted));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= wanted) ?? 10);
  const times = [];
  for (let at = Math.ceil(begin / step) * step; at <= end; at += step) times.push(at);
  return times;
}

// As many digits as neighbouring ticks need to differ.
export function tick_text(time, step) {
  if (Math.abs(time) < step / 1000) return "0";
  const [unit, name] = unit_of(time);
  return `${(time / unit).toFixed(Math.max(0, Math.ceil(Math.log10(unit / step) - 1e-9)))} ${name}`;
}

// Draws the ruler above `height` and its lines down through it.
export function paint_axis(context, view, top, height, colours) {
  const scale = view.width / (view.end - view.begin), times = ticks(view.begin, view.end, view.width);
  context.textBaseline = "middle";
  context.textAlign = "left";
  for (const time of times) {
    const x = Math.round(view.left + (time - view.begin) * scale) + 0.5;
    context.strokeStyle = colours.line;
    context.beginPath();
    context.moveTo(x, top);
    context.lineTo(x, height);
    context.stroke();
    context.fillStyle = colours.muted;
    const text = tick_text(time, times.length > 1 ? times[1] - times[0] : 1);
    if (x + 4 + context.measureText(text).width < view.left + view.width) context.fillText(text, x + 4, top + 9);
  }
}
