// What colours mean. Their values are in report.css, for light and dark; they differ in lightness, so that they can be told
// apart without seeing hues. One accent, orange, is for exposed communication and for nothing else.

export const kTrafficNames = ["dp_grad", "param_gather", "tp", "pp", "cp", "ep", "other"];
export const kTrafficWords = {
  dp_grad: "DP gradients", param_gather: "parameter gathers", tp: "TP", pp: "PP", cp: "CP", ep: "EP", other: "other",
};

// What a piece of a lane shows; the order is that of a stack in a column that holds several.
export const kCategories = ["forward", "input_grad", "weight_grad", "recompute", "optimizer", "compute", "hidden", "exposed"];
export const kCategoryWords = {
  forward: "forward", input_grad: "input gradient", weight_grad: "weight gradient", recompute: "recompute",
  optimizer: "optimizer", compute: "other compute", hidden: "communication, hidden", exposed: "communication, exposed",
};
export const kHidden = kCategories.indexOf("hidden");
export const kExposed = kCategories.indexOf("exposed");
const kOtherCompute = kCategories.indexOf("compute");

export function category_of_phase(phase) {
  const found = kCategories.indexOf(phase);
  return found >= 0 && found < kHidden ? found : kOtherCompute;
}

// The colours in force, read once for each drawing style.
export function read_colours() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const categories = kCategories.map((name) => colour(name.replace("_", "-")));
  return {
    categories, pixels: categories.map(pixel_of),
    ink: colour("ink"), muted: colour("muted"), line: colour("line"), paper: colour("paper"), panel: colour("panel"),
    accent: colour("exposed"), select: colour("select"), bubble: colour("bubble"),
    memory: [0, 1, 2, 3].map((i) => colour(`memory-${i}`)),
  };
}

// #rrggbb as a pixel of an image: its bytes are red, green, blue and opacity.
function pixel_of(colour) {
  const bytes = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) || 0);
  return new Uint32Array(Uint8Array.of(...bytes, 255).buffer)[0];
}

// Ink that can be read on a colour of the style sheet (#rrggbb).
export function ink_on(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) || 0);
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#14181c" : "#ffffff";
}
