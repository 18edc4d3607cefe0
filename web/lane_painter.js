// Paints lanes. A piece of two pixels or more is drawn as it is; narrower ones share columns of pixels, in which the height of
// a colour is its share of the time. So a picture of a million spans takes as long as its columns, and shows no false pattern.
import { fitted } from "./elements.js";
import { ink_on, kCategories } from "./palette.js";

const kWidePixels = 2, kLabelPixels = 26;

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

// `view` has begin, end (time), left, width (pixels); the lane is painted between top and top + height.
export function paint_lane(context, lane, view, top, height, colours) {
  const scale = view.width / (view.end - view.begin), shares = new Float64Array(kCategories.length);
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
    column = Math.max(column, Math.floor(start));
    const from = view.begin + column / scale, to = from + 1 / scale;
    i = lane.first_ending_after(from, i);
    i = column_shares(lane, from, to, i, shares);
    paint_column(context, shares, to - from, view.left + column, top, height, colours);
    column += 1;
  }
}

function paint_piece(context, lane, i, view, start, end, top, height, colours) {
  const width = end - start;
  context.fillStyle = colours.categories[lane.category[i]];
  context.fillRect(view.left + start, top, width > 4 ? width - 0.75 : width, height);
  if (width < kLabelPixels || height < 13 || !view.label) return;
  const text = fitted(context, view.label(lane.item[i]), width - 8);
  if (!text) return;
  context.fillStyle = ink_on(colours.categories[lane.category[i]]);
  context.fillText(text, view.left + start + 4, top + height / 2 + 0.5);
}

function paint_column(context, shares, length, x, top, height, colours) {
  let bottom = top + height;
  for (let category = 0; category < shares.length; ++category) {
    const part = Math.min(1, shares[category] / length) * height;
    if (part < 0.05) continue;
    context.fillStyle = colours.categories[category];
    context.fillRect(x, bottom - part, 1, part);
    bottom -= part;
  }
}
