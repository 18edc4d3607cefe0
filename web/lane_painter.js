// Paints lanes. A piece of two pixels or more is drawn as it is; narrower ones share columns of pixels, in which the height of
// a colour is its share of the time. So a picture of a million spans takes as long as its columns, and shows no false pattern.
import { fitted } from "./elements.js";
import { ink_on, kCategories } from "./palette.js";

const kWidePixels = 2, kLabelPixels = 60;

// The time that each category takes in [from, to), given the first piece that ends after `from`. Returns the piece to go on with.
function column_shares(lane, from, to, first, shares) {
  const next = lane.first_ending_after(to, first), is_cut = next < lane.count && lane.start[next] < to;
  for (let category = 0; category < kCategories.length; ++category) {
    const sum = lane.sums[category];
    shares[category] = sum ? sum[next] - sum[first] : 0;
  }
  if (first < next) shares[lane.category[first]] -= Math.max(0, from - lane.start[first]);
  if (is_cut) shares[lane.category[next]] += to - Math.max(from, lane.start[next]);
  return next;
}

// Columns of one lane as pixels. Tens of thousands of rectangles take a canvas longer than a frame; one image does not.
class ColumnImage {
  constructor() {
    this.canvas = document.createElement("canvas");
  }
  // Clears the image. It has as many rows as the screen shows of the lane, and a column for each pixel of the style sheet.
  begin(columns, rows, colours) {
    if (this.image?.width === columns && this.image.height === rows) {
      if (!this.is_empty) this.pixels.fill(0);
    } else {
      Object.assign(this.canvas, { width: columns, height: rows });
      this.context = this.canvas.getContext("2d");
      this.image = this.context.createImageData(columns, rows);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    this.colours = colours.pixels;
    this.is_empty = true;
  }
  // The height of a colour is its share of the column, from the bottom up.
  add(column, shares, length) {
    const { width, height } = this.image;
    let filled = 0;
    for (let category = 0; category < shares.length; ++category) {
      if (shares[category] <= 0) continue;
      const from = Math.round(filled * height);
      filled = Math.min(1, filled + shares[category] / length);
      for (let row = height - Math.round(filled * height); row < height - from; ++row) {
        this.pixels[row * width + column] = this.colours[category];
      }
    }
    this.is_empty = false;
  }
  paint(context, left, top, height) {
    if (this.is_empty) return;
    this.context.putImageData(this.image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.canvas, left, top, this.image.width, height);
  }
}
const column_images = new Map();  // by rows: lanes have few heights, and an image of the right size needs no new memory

// `view` has begin, end (time), left (whole pixels), width (pixels); the lane is painted between top and top + height.
export function paint_lane(context, lane, view, top, height, colours) {
  const scale = view.width / (view.end - view.begin), shares = new Float64Array(kCategories.length);
  const rows = Math.round(height * context.getTransform().d);
  if (!column_images.has(rows)) column_images.set(rows, new ColumnImage());
  const columns = column_images.get(rows);
  columns.begin(Math.ceil(view.width), rows, colours);
  let i = lane.first_ending_after(view.begin), column = 0;
  while (i < lane.count && column < view.width) {
    const start = (lane.start[i] - view.begin) * scale, end = (lane.end[i] - view.begin) * scale;
    if (start >= view.width) break;
    if (end - start >= kWidePixels) {
      paint_piece(context, lane, i, view, Math.max(start, column), Math.min(end, view.width), top, height, colours);
      column = Math.max(column, end);
      ++i;
      continue;
    }
    column = Math.max(Math.ceil(column), Math.floor(start));
    const from = view.begin + column / scale, to = from + 1 / scale;
    i = lane.first_ending_after(from, i);
    i = column_shares(lane, from, to, i, shares);
    columns.add(column, shares, to - from);
    column += 1;
  }
  columns.paint(context, view.left, top, height);
}

function paint_piece(context, lane, i, view, start, end, top, height, colours) {
  const width = end - start, colour = colours.categories[lane.category[i]];
  context.fillStyle = colour;
  context.fillRect(view.left + start, top, width > 4 ? width - 0.75 : width, height);
  if (width < kLabelPixels || height < 13 || !view.label) return;
  const text = fitted(context, view.label(lane.item[i]), width - 8);
  if (!text) return;
  context.fillStyle = ink_on(colour);
  context.fillText(text, view.left + start + 4, top + height / 2 + 0.5);
}
