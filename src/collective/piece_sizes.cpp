#include "collective/piece_sizes.hpp"

#include "base/error.hpp"

namespace weft {
namespace {

void append_cut(PieceSizes& sizes, std::int64_t elements, std::int64_t parts) {
  for (std::int64_t i = 0; i < parts; ++i) {
    sizes.push_back(part_begin(elements, parts, i + 1) - part_begin(elements, parts, i));
  }
}

void check_counts(std::span<const std::int64_t> counts, std::int64_t expected, Collective kind) {
  if (static_cast<std::int64_t>(counts.size()) != expected) {
    fail("{}: {} sizes are given, {} are needed", name_of(kind), counts.size(), expected);
  }
  for (const std::int64_t count : counts) {
    if (count < 0) fail("{}: a size is {}; 0 or more is allowed", name_of(kind), count);
  }
}

}  // namespace

PieceSizes even_sizes(const CollectiveSpec& spec, std::int64_t elements) {
  if (elements < 0) fail("{}: the size is {} elements; 0 or more is allowed", name_of(spec.kind), elements);
  PieceSizes sizes;
  if (spec.kind == Collective::barrier) elements = 0;
  const std::int64_t buffers = spec.kind == Collective::all_to_all ? spec.ranks : 1;
  for (std::int64_t buffer = 0; buffer < buffers; ++buffer) append_cut(sizes, elements, spec.pieces);
  return sizes;
}

PieceSizes sliced_sizes(const CollectiveSpec& spec, std::span<const std::int64_t> slices) {
  if (!is_divided(spec.kind) || spec.kind == Collective::all_to_all) {
    fail("{}: its buffer is not divided among the ranks", name_of(spec.kind));
  }
  check_counts(slices, spec.ranks, spec.kind);
  PieceSizes sizes;
  for (const std::int64_t slice : slices) append_cut(sizes, slice, spec.pieces / spec.ranks);
  return sizes;
}

std::int64_t input_elements(const CollectiveSpec& spec, const PieceSizes& sizes, std::int64_t rank) {
  std::int64_t elements = 0;
  for (std::int64_t slot = 0; slot < input_slots(spec, rank); ++slot) {
    elements += sizes[initial_content(spec, rank, slot).piece];
  }
  return elements;
}

std::int64_t output_elements(const CollectiveSpec& spec, const PieceSizes& sizes, std::int64_t rank) {
  std::int64_t elements = 0;
  for (std::int64_t slot = 0; slot < output_slots(spec, rank); ++slot) {
    elements += sizes[required_content(spec, rank, slot).piece];
  }
  return elements;
}

}  // namespace weft
