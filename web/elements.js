// Makes elements. Text goes in as text nodes only, so nothing that a file names can become markup.

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "style") Object.assign(made.style, value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat().filter((child) => child !== undefined && child !== null && child !== ""));
  return made;
}

export function section(id, title, note, ...children) {
  return element("section", { id, "aria-labelledby": `${id}-title` },
    element("h2", { id: `${id}-title` }, title), note ? element("p", { class: "note" }, note) : null, ...children);
}

// Rows are arrays of cells; the first column is left aligned.
export function table(header, rows) {
  return element("table", {},
    element("thead", {}, element("tr", {}, header.map((text) => element("th", { scope: "col" }, text)))),
    element("tbody", {}, rows.map((row) => element("tr", {}, row.map((cell) => element("td", {}, cell))))));
}

export function svg_element(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

// A canvas that has as many pixels as the screen shows.
export function sized_context(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const columns = Math.max(1, Math.round(width * ratio)), rows = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== columns || canvas.height !== rows) {
    canvas.width = columns;
    canvas.height = rows;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

// Cuts a text to what fits, with an ellipsis; "" where not even three letters fit.
export function fitted(context, text, width) {
  if (width < 18) return "";
  if (context.measureText(text).width <= width) return text;
  let low = 0, high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(text.slice(0, middle) + "\u2026").width <= width) low = middle;
    else high = middle - 1;
  }
  return low < 3 ? "" : text.slice(0, low) + "\u2026";
}
