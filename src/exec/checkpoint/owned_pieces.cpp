#include "exec/checkpoint/owned_pieces.hpp"

namespace weft {
namespace {

Matrix as_row(const Vector& elements) {
  return Matrix::dense(elements.data, 1, elements.size);
}

Vector own_part(const ParameterStates& parameters, const ParameterState& p, TensorKind kind) {
  return kind == TensorKind::weight ? parameters.own_master(p) : parameters.own_moment(p, static_cast<int>(kind) - 1);
}

// A vector stays one: its rectangle has a single column.
std::vector<std::int64_t> shape_of(const StoredPiece& piece, const ParameterTensor& whole) {
  if (!piece.is_rectangle() || whole.shape.size() == 1) return {piece.elements.size()};
  return {piece.rows.size(), piece.columns.size()};
}

// Adds the pieces of elements `share`, which `part` holds from element `begin` of the parameter on.
void add_pieces(const ParameterState& p, std::size_t parameter, TensorKind kind, ElementRange share, const Vector& part,
                std::int64_t begin_of_part, std::vector<OwnedPiece>& pieces) {
  const bool is_error = kind == TensorKind::gradient_error || kind == TensorKind::sum_error;
  for (const HeldTensor& tensor : p.tensors) {
    if (tensor.copy && !(is_error && is_tied_head(p))) continue;
    const ElementRange in_part{share.begin - tensor.offset, share.end - tensor.offset};
    for_each_rectangle(tensor, in_part, [&](auto rows, auto columns, auto elements, std::int64_t at) {
      OwnedPiece piece{{tensor.whole.name, kind, rows, columns, elements, 0}, parameter, {}, {}};
      const std::int64_t begin = tensor.offset + at - begin_of_part;
      piece.source = as_row(part.slice(begin, begin + elements.size()));
      piece.shape = shape_of(piece.stored, tensor.whole);
      pieces.push_back(std::move(piece));
    });
  }
}

void add_bases(const ParameterStates& parameters, const ParameterState& p, std::size_t parameter,
               std::vector<OwnedPiece>& pieces) {
  if (!parameters.saves_bases(p)) return;
  for (const HeldBasis& basis : parameters.bases_of(p)) {
    StoredPiece piece = piece_of_basis(*basis.tensor, basis.factor.size);
    // A part of padding alone has no place in the tensor.
    if (basis.tensor->copy || piece.elements.size() > piece.rows.size() * piece.columns.size()) continue;
    pieces.push_back({std::move(piece), parameter, as_row(basis.factor), {basis.factor.size}});
  }
}

// Ranks that hold the same factor share its rows out.
void add_factor(const CurvatureFactor& factor, ElementRange share, std::size_t item, std::vector<OwnedPiece>& pieces) {
  if (factor.copy) return;
  std::int64_t first_row = 0;
  for (const ElementRange& all_rows : factor.rows) {
    const ElementRange held = overlap(share, {first_row, first_row + all_rows.size()});
    const std::int64_t to_whole = all_rows.begin - first_row;
    first_row += all_rows.size();
    if (held.empty()) continue;
    const ElementRange rows{held.begin + to_whole, held.end + to_whole};
    std::int64_t first_column = 0;
    for (const ElementRange& columns : factor.rows) {
      const Matrix block =
          factor.average.row_slice(held.begin, held.end).column_slice(first_column, first_column + columns.size());
      first_column += columns.size();
      OwnedPiece piece{
          {factor.tensor, factor.kind(), rows, columns, {0, rows.size() * columns.size()}, 0}, item, block, {}};
      piece.shape = {rows.size(), columns.size()};
      pieces.push_back(std::move(piece));
    }
  }
}

}  // namespace

StoredPiece piece_of_basis(const HeldTensor& tensor, std::int64_t elements) {
  const ElementRange rows{tensor.rows.front().begin, tensor.rows.back().end};
  return {tensor.whole.name, TensorKind::basis, rows, tensor.columns, {0, elements}, 0};
}

bool is_tied_head(const ParameterState& p) {
  return p.role == Role::head && p.tensors.front().whole.repeated;
}

std::vector<TensorKind> kinds_of(const TrainSettings& settings) {
  if (settings.optimizer != Optimizer::sgd) {
    std::vector<TensorKind> kinds{TensorKind::weight, TensorKind::first_moment, TensorKind::second_moment};
    if (settings.optimizer == Optimizer::kfac) {
      kinds.insert(kinds.end(), {TensorKind::input_factor, TensorKind::output_factor});
    }
    return kinds;
  }
  if (settings.sgd.momentum != 0) return {TensorKind::weight, TensorKind::first_moment};
  return {TensorKind::weight};
}

std::size_t saved_items(const ParameterStates& parameters) {
  return parameters.all().size() + parameters.factors().size();
}

std::vector<OwnedPiece> owned_pieces(const ParameterStates& parameters, const std::vector<TensorKind>& kinds) {
  std::vector<OwnedPiece> pieces;
  for (std::size_t i = 0; i < parameters.all().size(); ++i) {
    const ParameterState& p = parameters.all()[i];
    const ElementRange own = parameters.own(p), share = parameters.saved(p);
    for (const TensorKind kind : kinds) {
      if (!is_of_curvature(kind)) {
        add_pieces(p, i, kind, share, own_part(parameters, p, kind), own.begin, pieces);
      }
    }
    for (const HeldErrors& held : parameters.errors_of(p)) {
      add_pieces(p, i, held.of_sum ? TensorKind::sum_error : TensorKind::gradient_error, held.elements, held.errors,
                 held.elements.begin, pieces);
    }
    add_bases(parameters, p, i, pieces);
  }
  for (std::size_t i = 0; i < parameters.factors().size(); ++i) {
    const CurvatureFactor& factor = parameters.factors()[i];
    add_factor(factor, parameters.saved_rows(factor), parameters.all().size() + i, pieces);
  }
  return pieces;
}

}  // namespace weft
