// The section of timelines: one panel or two above each other on one axis, a strip of the whole, search, keys, and what is
// known of the span that was clicked.
import { element, section } from "./elements.js";
import { count_text, time_text } from "./formats.js";
import { MiniMap } from "./mini_map.js";
import { kCategories, kCategoryWords } from "./palette.js";
import { name_of_span, place_of_span, span_detail, stretch_words, waits_of } from "./span_detail.js";
import { TimelinePanel, kGutter } from "./timeline_panel.js";

const kNone = -1;

export class TimelineSection {
  // `entries` are the timelines of the page, each with `title` and `load`, a function that returns a promise.
  constructor(entries, view, colours) {
    Object.assign(this, { entries, view, colours, panels: [], found: [], found_at: kNone, listeners: [] });
    this.mini = new MiniMap(view);
    this.tip = element("div", { class: "tip", hidden: true });
    this.detail = element("div", { class: "detail", "aria-live": "polite" });
    this.stack = element("div");
    this.root = section("timeline", "Timeline", null, this.make_tools(), this.mini.root, this.stack, this.make_legend(),
      this.detail, this.tip);
    this.clear_detail();
    view.on_change(() => this.draw_soon());
    window.addEventListener("resize", () => this.draw_soon());
    this.root.addEventListener("keydown", (event) => this.on_key(event));
  }

  make_choice(label, choices, chosen) {
    const select = element("select", { "aria-label": label }, choices.map(([value, text]) =>
      element("option", { value, selected: value === chosen }, text)));
    select.addEventListener("change", () => this.show(Number(this.upper.value), Number(this.lower.value)));
    return select;
  }

  make_tools() {
    const choices = this.entries.map((entry, i) => [i, entry.title]);
    this.upper = this.make_choice("timeline", choices, 0);
    this.lower = this.make_choice("timeline below", [[kNone, "none"], ...choices], kNone);
    this.search = element("input", { type: "search", placeholder: "search, e.g. qkv forward", "aria-label": "search operations" });
    this.search.addEventListener("input", () => this.find(this.search.value));
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.next_found(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") this.search.blur();
      event.stopPropagation();
    });
    this.count = element("span", { class: "small", role: "status" });
    const button = (text, label, action) => {
      const made = element("button", { type: "button", "aria-label": label, title: label }, text);
      made.addEventListener("click", action);
      return made;
    };
    return element("div", { class: "tools" },
      element("label", {}, "show", this.upper), this.entries.length > 1 ? element("label", {}, "above", this.lower) : null,
      element("span", { class: "grow" }), this.count, this.search,
      element("span", { class: "buttons" }, button("\u2212", "zoom out", () => this.view.zoom(1.6)),
        button("+", "zoom in", () => this.view.zoom(0.625)), button("all", "show all", () => this.view.reset())));
  }

  make_legend() {
    const keys = ["drag", "to move,", "ctrl+wheel", "or", "w", "s", "to zoom,", "a", "d", "to move,", "/", "to search,", "n", "p",
      "for the next,", "0", "for all"];
    const is_key = new Set(["drag", "ctrl+wheel", "w", "s", "a", "d", "/", "n", "p", "0"]);
    return element("div", {},
      element("ul", { class: "legend" }, kCategories.map((name) =>
        element("li", {}, element("i", { style: { background: `var(--${name.replace("_", "-")})` } }), kCategoryWords[name]))),
      element("p", { class: "small" }, "Where pieces are narrower than two pixels, the height of a colour is its share of the time. ",
        keys.flatMap((key) => [is_key.has(key) ? element("kbd", {}, key) : key, " "])));
  }

  on_shown(listener) {
    this.listeners.push(listener);
  }

  // Shows one entry, and another below it unless that is kNone.
  async show(upper, lower = kNone) {
    this.upper.value = String(upper);
    this.lower.value = String(lower);
    const numbers = lower === kNone || lower === upper ? [upper] : [upper, lower];
    const timelines = await Promise.all(numbers.map((n) => this.entries[n].load()));
    const before = this.panels;
    this.panels = timelines.map((timeline, i) => {
      const entry = this.entries[numbers[i]];
      return before.find((panel) => panel.entry === entry) ?? this.make_panel(timeline, entry);
    });
    this.stack.replaceChildren(...this.panels.map((panel) => panel.root));
    this.view.set_length(Math.max(...timelines.map((timeline) => timeline.length)));
    this.view.set(0, 1.01 * Math.max(...timelines.map((timeline) => Math.min(timeline.period, timeline.length))));
    this.clear_detail();
    this.find(this.search.value);
    for (const listener of this.listeners) listener(timelines[0]);
  }

  make_panel(timeline, entry) {
    const panel = new TimelinePanel(timeline, this.view);
    panel.entry = entry;
    panel.canvas.addEventListener("wheel", (event) => this.on_wheel(event, panel), { passive: false });
    this.add_pointer(panel);
    return panel;
  }

  add_pointer(panel) {
    let from = null;
    const { canvas } = panel;
    canvas.addEventListener("pointerdown", (event) => {
      from = { x: event.clientX, begin: this.view.begin, end: this.view.end, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!from) return this.show_tip(event, panel);
      const shift = event.clientX - from.x;
      from.moved ||= Math.abs(shift) > 3;
      if (!from.moved) return;
      const time = (shift * (from.end - from.begin)) / panel.frame().width;
      this.view.set(from.begin - time, from.end - time);
    });
    canvas.addEventListener("pointerup", (event) => {
      if (from && !from.moved) this.click(event, panel);
      from = null;
    });
    canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
    canvas.addEventListener("dblclick", (event) => {
      const hit = panel.at(event.offsetX, event.offsetY);
      if (hit?.item >= 0) this.view.show(panel.timeline.spans.start[hit.item], panel.timeline.spans.end[hit.item]);
    });
  }

  on_wheel(event, panel) {
    const frame = panel.frame(), box = panel.canvas.getBoundingClientRect();
    const anchor = Math.min(1, Math.max(0, (event.clientX - box.left - kGutter) / frame.width));
    if (event.ctrlKey || event.metaKey) this.view.zoom(Math.exp(event.deltaY * 0.004), anchor);
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.view.pan(event.deltaX / frame.width);
    else if (event.shiftKey) this.view.pan(event.deltaY / frame.width);
    else return;
    event.preventDefault();
  }

  on_key(event) {
    const actions = {
      w: () => this.view.zoom(0.625), "+": () => this.view.zoom(0.625), "=": () => this.view.zoom(0.625),
      s: () => this.view.zoom(1.6), "-": () => this.view.zoom(1.6), a: () => this.view.pan(-0.2), ArrowLeft: () => this.view.pan(-0.2),
      d: () => this.view.pan(0.2), ArrowRight: () => this.view.pan(0.2), 0: () => this.view.reset(), Home: () => this.view.reset(),
      "/": () => this.search.focus(), n: () => this.next_found(1), p: () => this.next_found(-1), Escape: () => this.clear_detail(),
    };
    const is_typing = ["INPUT", "SELECT"].includes(event.target.tagName);
    if (is_typing || event.ctrlKey || event.metaKey || event.altKey || !actions[event.key]) return;
    actions[event.key]();
    event.preventDefault();
  }

  show_tip(event, panel) {
    const hit = panel.at(event.offsetX, event.offsetY);
    this.tip.hidden = !hit || hit.item === null;
    if (this.tip.hidden) return;
    const { timeline } = panel, { spans } = timeline, item = hit.item;
    this.tip.textContent = item < 0 ? stretch_words(timeline, -1 - item)
      : `${name_of_span(timeline, item)}: ${time_text(spans.end[item] - spans.start[item])} \u2013 ${place_of_span(timeline, item)}`;
    this.tip.style.left = `${Math.min(event.clientX + 14, window.innerWidth - this.tip.offsetWidth - 8)}px`;
    this.tip.style.top = `${event.clientY + 16}px`;
  }

  click(event, panel) {
    panel.canvas.focus({ preventScroll: true });
    const hit = panel.at(event.offsetX, event.offsetY);
    if (!hit || hit.item === null) return this.clear_detail();
    const { exposed, operations, spans } = panel.timeline;
    if (hit.item >= 0) return this.select(panel, hit.item);
    // An exposed stretch stands for the transfer that ends it.
    const stretch = -1 - hit.item;
    let waited_for = kNone;
    for (let i = 0; i < spans.count; ++i) {
      const o = spans.operation[i];
      if (operations.rank[o] === exposed.rank[stretch] && operations.traffic[o] === exposed.traffic[stretch] &&
          spans.start[i] <= hit.time && spans.end[i] > hit.time) waited_for = i;
    }
    if (waited_for !== kNone) this.select(panel, waited_for);
    else this.detail.replaceChildren(element("p", { class: "empty" }, stretch_words(panel.timeline, stretch)));
  }

  select(panel, span) {
    for (const other of this.panels) Object.assign(other, { selected: kNone, arrows: [] });
    panel.selected = span;
    panel.arrows = waits_of(panel.timeline, span).slice(0, 12).map((wait) => wait.span);
    panel.scroll_to_span(span);
    const { spans } = panel.timeline;
    if (spans.end[span] <= this.view.begin || spans.start[span] >= this.view.end) {
      const half = (this.view.end - this.view.begin) / 2, middle = (spans.start[span] + spans.end[span]) / 2;
      this.view.set(middle - half, middle + half);
    }
    this.detail.replaceChildren(...span_detail(panel.timeline, span, panel.entry.algorithms, (other) => this.select(panel, other)));
    this.draw_soon();
  }

  clear_detail() {
    for (const panel of this.panels) Object.assign(panel, { selected: kNone, arrows: [] });
    this.detail.replaceChildren(element("p", { class: "empty" }, "Click a span: what it is, what it waited for, why it is not earlier."));
    this.draw_soon();
  }

  // Marks every span whose name contains the text.
  find(text) {
    const wanted = text.trim().toLowerCase();
    this.found = [];
    this.found_at = kNone;
    for (const panel of this.panels) {
      const { names, operations, spans } = panel.timeline;
      const hits = wanted ? names.map((name) => String(name).toLowerCase().includes(wanted)) : null, own = [];
      for (let i = 0; hits && i < spans.count; ++i) if (hits[operations.name[spans.operation[i]]]) own.push(i);
      panel.mark(hits && own);
      for (const span of own) this.found.push({ panel, span });
    }
    this.found.sort((a, b) => a.panel.timeline.spans.start[a.span] - b.panel.timeline.spans.start[b.span]);
    this.count.textContent = wanted ? `${count_text(this.found.length)} found` : "";
    this.draw_soon();
  }

  next_found(direction) {
    if (!this.found.length) return;
    const at = this.found_at === kNone && direction < 0 ? 0 : this.found_at;
    this.found_at = (at + direction + this.found.length) % this.found.length;
    const { panel, span } = this.found[this.found_at];
    this.count.textContent = `${count_text(this.found_at + 1)} of ${count_text(this.found.length)}`;
    this.select(panel, span);
  }

  draw_soon() {
    this.waiting ??= requestAnimationFrame(() => {
      this.waiting = null;
      this.draw();
    });
  }
  draw() {
    if (!this.panels.length) return;
    Object.assign(this.root.dataset, { begin: this.view.begin, end: this.view.end });
    this.mini.draw(this.panels[0], this.colours());
    for (const panel of this.panels) panel.draw(this.colours());
  }
}
