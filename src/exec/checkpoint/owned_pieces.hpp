// Which elements of the model's tensors a rank answers for in a checkpoint, and where it has them.
#pragma once

#include <vector>

#include "exec/checkpoint/manifest.hpp"
#include "exec/parameter_state.hpp"
#include "exec/train_settings.hpp"

namespace weft {

struct OwnedPiece {
  StoredPiece stored;  // offset not yet known
  // What it is copied with, when that is of the step: index into ParameterStates::all() or, behind those, factors().
  std::size_t item = 0;
  Matrix source;                    // fp32, in the rank's memory: its elements, row by row
  std::vector<std::int64_t> shape;  // in a file: that of the rectangle, or one dimension
};

// Returns whether it is a head whose weights the embedding of another stage has too. Their gradients are summed, so
// each has compression errors of its own, whereas those of other copies are the same.
bool is_tied_head(const ParameterState& p);

// Returns what the basis of a matrix is stored as: so many elements, under the rows and columns that the part spans.
StoredPiece piece_of_basis(const HeldTensor& tensor, std::int64_t elements);

// What the optimizer of a run keeps beside the weights.
std::vector<TensorKind> kinds_of(const TrainSettings& settings);

// Returns how many items there are.
std::size_t saved_items(const ParameterStates& parameters);

// In order, those of an item one after the other. Over all ranks every element of every tensor is there once:
// ranks that hold the same (data-parallel ones without ZeRO, replicas of a shard) share the writing. Padding is left
// out. Of compression errors every rank answers for its own, and for a basis of PowerSGD the first that has it. Of
// K-FAC's factors there are the blocks that some rank has.
std::vector<OwnedPiece> owned_pieces(const ParameterStates& parameters, const std::vector<TensorKind>& kinds);

// Elements `elements` of a rank's part of a tensor, as the rectangles (or parts of such) that the whole knows them by;
// `visit(rows, columns, elements of the rectangle, begin in the part)`.
template <class Visit>
void for_each_rectangle(const HeldTensor& tensor, ElementRange elements, const Visit& visit) {
  std::int64_t first = 0;  // of the rows, in the part
  for (const ElementRange& rows : tensor.rows) {
    const std::int64_t size = rows.size() * tensor.columns.size();
    const ElementRange wanted = overlap(elements, {first, first + size});
    if (!wanted.empty())
      visit(rows, tensor.columns, ElementRange{wanted.begin - first, wanted.end - first}, wanted.begin);
    first += size;
  }
}

}  // namespace weft
