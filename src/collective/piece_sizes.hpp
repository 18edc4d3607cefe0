// How many elements each piece has. Sizes that the pieces do not divide are spread evenly; a piece may be empty.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collective/semantics.hpp"

namespace weft {

using PieceSizes = std::vector<std::int64_t>;  // elements, by piece

// Returns where part i of `parts` begins: floor(elements i / parts) without overflow. Cutting a part again gives the
// same borders as cutting finer at once.
constexpr std::int64_t part_begin(std::int64_t elements, std::int64_t parts, std::int64_t i) {
  return elements / parts * i + elements % parts * i / parts;
}

// `elements` is the whole buffer: what one rank has before all_reduce, reduce_scatter, all_to_all or scatter and after
// all_gather or gather.
PieceSizes even_sizes(const CollectiveSpec& spec, std::int64_t elements);
// all_gather, reduce_scatter, gather, scatter: slices[r] elements belong to rank r. Throws Error on a wrong count.
PieceSizes sliced_sizes(const CollectiveSpec& spec, std::span<const std::int64_t> slices);

// The elements of a rank's input or output buffer; in place, both are one buffer of this size.
std::int64_t input_elements(const CollectiveSpec& spec, const PieceSizes& sizes, std::int64_t rank);
std::int64_t output_elements(const CollectiveSpec& spec, const PieceSizes& sizes, std::int64_t rank);

}  // namespace weft
