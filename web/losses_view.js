// Losses over the steps of training: a curve for every policy of every run on the page and for the losses that a run was
// compared with; below them, where gradients travel encoded, how much of them each step held back.
import { element, section, svg_element } from "./elements.js";
import { change_text, is_number } from "./formats.js";

const kWidth = 760, kLeft = 74, kRight = 14, kTop = 12, kBottom = 34, kColours = 5, kLeastError = 1e-6;

// The numbers of a list; it ends before what is none.
function numbers_of(list) {
  if (!Array.isArray(list)) return [];
  const end = list.findIndex((value) => !is_number(value));
  return end < 0 ? list : list.slice(0, end);
}

function encoding_words(layout) {
  const { gradients, weights, between_nodes: between } = layout?.compress ?? {}, words = [];
  if (gradients) words.push(`gradients ${gradients}${between ? " between nodes" : ""}`);
  if (weights) words.push(`weights ${weights}`);
  return words.length ? words.join(", ") : "uncompressed";
}

// Curves of all runs, named by what tells them apart.
function curves_of(sources) {
  const runs = sources.filter(({ summary }) => Object.values(summary?.policies ?? {}).some((policy) => numbers_of(policy?.losses).length));
  const curves = runs.flatMap(({ name, summary }) => Object.entries(summary.policies).map(([policy, run]) => ({
    name: [runs.length > 1 ? `${name}:` : "", `${policy},`, encoding_words(summary.layout)].filter(Boolean).join(" "), is_plain: !summary.layout?.compress,
    losses: numbers_of(run?.losses), errors: numbers_of(run?.compression_errors) })));
  for (const { summary } of runs) {
    const { file, policy, losses } = summary.earlier_losses ?? {}, values = numbers_of(losses);
    if (values.length) curves.push({ name: `${file}: ${policy ?? "earlier"}`, is_plain: true, is_earlier: true, losses: values, errors: [] });
  }
  return curves.filter(({ losses }) => losses.length).map((curve, i) => ({ ...curve, colour: curve.is_earlier ? "var(--ink)" : `var(--memory-${i % kColours})`, dash: i >= kColours ? "5 3" : "" }));
}

function scale_of(lists, height, bottom) {
  const all = lists.flat(), least = Math.min(bottom, ...all), highest = Math.max(...all);
  const most = highest > least ? highest + 0.05 * (highest - least) : least + 1, steps = Math.max(2, ...lists.map((list) => list.length));
  return {
    least, most, steps,
    x: (step) => kLeft + ((step - 1) / (steps - 1)) * (kWidth - kLeft - kRight),
    y: (value) => height - kBottom - ((value - least) / (most - least)) * (height - kTop - kBottom),
  };
}

function axes(picture, scale, height, words) {
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const value = scale.least + share * (scale.most - scale.least), y = scale.y(value);
    picture.append(svg_element("path", { d: `M${kLeft} ${y}H${kWidth - kRight}`, stroke: "var(--line)" }),
      svg_element("text", { x: kLeft - 8, y: y + 4, "text-anchor": "end" }, words(value)));
  }
  const between = Math.max(1, Math.ceil(scale.steps / 10));
  for (let step = 1; step <= scale.steps; step += between) {
    picture.append(svg_element("text", { x: scale.x(step), y: height - kBottom + 16, "text-anchor": "middle" }, String(step)));
  }
}

// `value_of` says where a value lies, `words` what it is called, given where it lies.
function step_figure(title, curves, key, height, { value_of = (value) => value, words, bottom = Infinity }) {
  const drawn = curves.filter((curve) => curve[key].length).map((curve) => ({ ...curve, values: curve[key].map(value_of) }));
  const scale = scale_of(drawn.map(({ values }) => values), height, bottom);
  const picture = svg_element("svg", { viewBox: `0 0 ${kWidth} ${height}`, width: kWidth, height, role: "img", "aria-label": title });
  axes(picture, scale, height, words);
  for (const { name, colour, dash, values } of drawn) {
    const points = values.map((value, i) => `${scale.x(i + 1)},${scale.y(value)}`).join(" ");
    picture.append(svg_element("polyline", { points, fill: "none", stroke: colour, "stroke-width": 1.8, "stroke-dasharray": dash },
      svg_element("title", {}, `${name}: ${words(values[0])} at first, ${words(values.at(-1))} at last`)));
    if (values.length === 1) picture.append(svg_element("circle", { cx: scale.x(1), cy: scale.y(values[0]), r: 3, fill: colour }));
  }
  return element("figure", {}, element("figcaption", {}, title), picture);
}

// How far each encoded run is from an uncompressed one at the last step that both have.
function comparison_words(curves) {
  const plain = curves.find(({ is_plain }) => is_plain);
  if (!plain) return [];
  return curves.filter((curve) => curve !== plain && !curve.is_plain).map(({ name, losses }) => {
    const last = Math.min(losses.length, plain.losses.length) - 1;
    return `${name}: ${change_text(losses[last], plain.losses[last])} at step ${last + 1} against ${plain.name}.`;
  });
}

export function losses_section(sources) {
  const curves = curves_of(sources);
  if (!curves.length) return null;
  const figures = [step_figure("loss", curves, "losses", 300, { words: (value) => value.toPrecision(4) })];
  if (curves.some(({ errors }) => errors.length)) {
    figures.push(step_figure("held back: the norm of what compression keeps for later steps over that of the gradients", curves, "errors", 180,
      { value_of: (value) => Math.log10(Math.max(value, kLeastError)), words: (value) => (10 ** value).toPrecision(2) }));
  }
  const legend = curves.map(({ colour, name }) => element("li", {}, element("i", { style: { background: colour } }), name));
  return section("losses", "Losses", "By step of training. Compression changes what is trained, so its curves are shown beside uncompressed ones where the page has both.",
    element("div", {}, figures), element("ul", { class: "legend" }, legend), comparison_words(curves).map((words) => element("p", {}, words)));
}
