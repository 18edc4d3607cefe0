// Quantities as people read them. Whatever is no number is a dash.

export function is_number(value) {
  return typeof value === "number" && Number.isFinite(value);
}

// A number of a file, or 0.
export function number_of(value) {
  return is_number(value) ? value : 0;
}

const kTimeUnits = [[1e9, "s"], [1e6, "ms"], [1e3, "\u00b5s"], [1, "ns"]];

// The largest unit that is not longer than the time: nanoseconds, and its name.
export function unit_of(nanos) {
  return kTimeUnits.find(([least]) => Math.abs(nanos) >= least) ?? kTimeUnits[3];
}

// Nanoseconds: "17.602 s", "231.05 ms".
export function time_text(nanos) {
  if (!is_number(nanos)) return "\u2013";
  if (nanos === 0) return "0";
  const [unit, name] = unit_of(nanos);
  const value = nanos / unit;
  const digits = unit === 1 ? 0 : Math.abs(value) >= 100 ? 1 : Math.abs(value) >= 10 ? 2 : 3;
  return `${value.toFixed(digits)} ${name}`;
}

export function seconds_text(seconds) {
  return is_number(seconds) ? time_text(seconds * 1e9) : "\u2013";
}

const kByteUnits = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes_text(bytes) {
  if (!is_number(bytes)) return "\u2013";
  let value = bytes, unit = 0;
  while (Math.abs(value) >= 1024 && unit + 1 < kByteUnits.length) {
    value /= 1024;
    ++unit;
  }
  return `${value.toFixed(unit === 0 ? 0 : Math.abs(value) >= 100 ? 0 : 1)} ${kByteUnits[unit]}`;
}

export function percent_text(part, whole) {
  if (!is_number(part) || !is_number(whole) || whole === 0) return "\u2013";
  const percent = (100 * part) / whole;
  return `${percent.toFixed(Math.abs(percent) < 10 ? 1 : 0)} %`;
}

// "+17.3 %", "-1.2 %".
export function change_text(value, before) {
  if (!is_number(value) || !is_number(before) || before === 0) return "\u2013";
  const percent = 100 * (value / before - 1);
  return `${percent > 0 ? "+" : percent < 0 ? "\u2212" : ""}${Math.abs(percent).toFixed(1)} %`;
}

// "68,976,648,192". The browser's own way to write numbers takes longer to load than the rest of the page.
export function count_text(count) {
  return is_number(count) ? String(Math.round(count)).replace(/\B(?=(\d{3})+$)/g, ",") : "\u2013";
}
