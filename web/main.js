// Puts the page together: what is small at once, timelines when they are unpacked.
import { collective_section } from "./collective_view.js";
import { element } from "./elements.js";
import { ExposureView } from "./exposure_view.js";
import { count_text, is_number } from "./formats.js";
import { figures, headline_section } from "./headline.js";
import { LinksView } from "./links_view.js";
import { losses_section } from "./losses_view.js";
import { memory_section } from "./memory_bars.js";
import { MemoryCurve } from "./memory_curve.js";
import { read_page_data, read_timeline } from "./packed_data.js";
import { read_colours } from "./palette.js";
import { PipelineView } from "./pipeline_view.js";
import { sweep_section } from "./sweep_view.js";
import { TimeView } from "./time_axis.js";
import { TimelineSection } from "./timeline_section.js";
import { trace_section } from "./trace_view.js";

function layout_words(summary) {
  const { layout, model, cluster } = summary, words = [];
  if (is_number(model?.parameters)) words.push(`${count_text(model.parameters)} parameters`);
  if (cluster?.devices) words.push(`${cluster.devices} \u00d7 ${cluster.device}`);
  if (layout) {
    words.push(["tp", "pp", "dp", "cp", "ep"].filter((axis) => layout[axis] > 1).map((axis) => `${axis} ${layout[axis]}`).join(" \u00b7 "));
    words.push(`batch ${layout.global_batch} in micro-batches of ${layout.micro_batch}`, `sequence ${layout.seq}`);
    if (layout.zero) words.push(`ZeRO ${layout.zero}`);
    if (layout.pp > 1) words.push(String(layout.schedule));
  }
  return words.filter(Boolean).join(", ");
}

function source_view(source) {
  const summary = source.summary ?? {};
  return element("div", {}, layout_words(summary) ? element("p", { class: "note" }, layout_words(summary)) : null, figures(summary),
    headline_section(summary), trace_section(summary), sweep_section(summary), collective_section(summary), memory_section(summary));
}

// Several sources are shown one at a time; their timelines all together.
function source_tabs(sources, place) {
  const views = sources.map(source_view);
  const show = (n) => {
    place.replaceChildren(views[n]);
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === n)));
  };
  const buttons = sources.map((source, i) => {
    const button = element("button", { type: "button" }, source.name);
    button.addEventListener("click", () => show(i));
    return button;
  });
  show(0);
  return sources.length > 1 ? element("div", { class: "tabs" }, buttons) : null;
}

function timeline_entries(sources) {
  let number = 0;
  return sources.flatMap((source) => source.timelines.map(({ title, policy }) => {
    const n = number++;
    let loaded = null;
    return { title: sources.length > 1 ? `${source.name}: ${title}` : title, policy,
             algorithms: source.summary?.policies?.[policy]?.collectives, load: () => (loaded ??= read_timeline(n)) };
  }));
}

// The page can be used when the first timeline is there; then the second one comes.
async function show_first(timelines, count) {
  await timelines.show(0);
  document.documentElement.dataset.ready = "true";
  await new Promise((done) => setTimeout(done));
  if (count > 1) await timelines.show(0, 1);
  await new Promise((done) => setTimeout(done));
  document.documentElement.dataset.complete = "true";
}

function add_timelines(page, data) {
  const entries = timeline_entries(data.sources);
  if (!entries.length) return;
  let colours = read_colours();
  const view = new TimeView(1), current = () => colours;
  const timelines = new TimelineSection(entries, view, current);
  const pipeline = new PipelineView(view, current), memory = new MemoryCurve(view, current);
  const links = new LinksView(view, current), exposure = new ExposureView();
  timelines.on_shown((timeline) => {
    pipeline.show(timeline);
    memory.show(timeline);
    setTimeout(() => {  // what is below comes when the timeline can be used
      links.show(timeline);
      exposure.show(timeline);
    });
  });
  const redraw = () => {
    colours = read_colours();
    view.set(view.begin, view.end);
    timelines.draw();  // before the paper is printed, not with the next frame
  };
  for (const query of ["(prefers-color-scheme: dark)", "print"]) window.matchMedia(query).addEventListener("change", redraw);
  page.append(timelines.root, pipeline.root, links.root, memory.root, exposure.root);
  show_first(timelines, entries.length).catch((error) => {
    timelines.root.append(element("p", {}, `The timeline cannot be read: ${error.message}`));
  });
}

function build_page() {
  const page = document.getElementById("page"), data = read_page_data(), place = element("div");
  const tabs = source_tabs(data.sources, place);
  const losses = losses_section(data.sources);  // of all runs together
  page.replaceChildren(element("h1", {}, data.title), ...(tabs ? [tabs] : []), place, ...(losses ? [losses] : []));
  add_timelines(page, data);
  const version = data.sources.map((source) => source.summary?.version).find(Boolean);
  page.append(element("footer", {}, `Made by weft${version ? ` ${version}` : ""}. Predicted times come from a model of the machine, unless the page says measured.`));
  if (!data.sources.some((source) => source.timelines.length)) {
    Object.assign(document.documentElement.dataset, { ready: "true", complete: "true" });
  }
}

build_page();
