#include "exec/checkpoint/checkpoint_reader.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "exec/checkpoint/owned_pieces.hpp"

namespace weft {
namespace {

// A rectangle of a tensor of which the elements `elements` (row by row) lie one after the other at `data`.
template <class Float>
struct PlacedPart {
  ElementRange rows, columns, elements;
  std::span<Float> data;

  // The columns of `row` that are among `elements`.
  ElementRange columns_in(std::int64_t row) const {
    const std::int64_t first = (row - rows.begin) * columns.size();
    const ElementRange in_row = overlap(elements, {first, first + columns.size()});
    return {columns.begin + in_row.begin - first, columns.begin + in_row.end - first};
  }
  auto at(std::int64_t row, std::int64_t column) const {
    return data.begin() + ((row - rows.begin) * columns.size() + column - columns.begin - elements.begin);
  }
};

// Calls take(elements of from, elements of to, count) for all that both have; returns how many elements that is.
template <class Take>
std::int64_t for_common(const PlacedPart<const float>& from, const PlacedPart<float>& to, const Take& take) {
  const ElementRange rows = overlap(from.rows, to.rows);
  std::int64_t copied = 0;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const ElementRange columns = overlap(from.columns_in(row), to.columns_in(row));
    if (columns.empty()) continue;
    take(from.at(row, columns.begin), to.at(row, columns.begin), columns.size());
    copied += columns.size();
  }
  return copied;
}

}  // namespace

CheckpointReader::CheckpointReader(std::filesystem::path folder, CheckpointManifest manifest)
    : folder_(std::move(folder)), manifest_(std::move(manifest)) {
  for (const StoredFile& file : manifest_.files) {
    files_.push_back(std::make_unique<MappedFile>(folder_ / file.name));
    const std::span<const std::byte> bytes = files_.back()->bytes();
    if (std::ssize(bytes) != file.bytes) fail("{}: has changed while it was read", (folder_ / file.name).string());
    for (const StoredPiece& piece : file.pieces) {
      const auto* const first = reinterpret_cast<const float*>(bytes.data() + piece.offset);
      const std::span data(first, static_cast<std::size_t>(piece.elements.size()));
      sources_[{piece.tensor, piece.kind}].push_back({&piece, data});
    }
  }
}

void CheckpointReader::read(const std::vector<HeldTensor>& tensors, TensorKind kind, ElementRange range,
                            std::span<float> out) const {
  std::ranges::fill(out, 0.0F);
  for (const HeldTensor& tensor : tensors) {
    const ElementRange in_part{range.begin - tensor.offset, range.end - tensor.offset};
    const auto sources = sources_.find({tensor.whole.name, kind});
    for_each_rectangle(tensor, in_part, [&](auto rows, auto columns, ElementRange elements, std::int64_t at) {
      const PlacedPart<float> to{rows, columns, elements, out.subspan(tensor.offset + at - range.begin)};
      std::int64_t copied = 0;
      if (sources != sources_.end()) {
        for (const Source& source : sources->second) {
          const StoredPiece& piece = *source.piece;
          copied += for_common({piece.rows, piece.columns, piece.elements, source.data}, to,
                               [](auto from, auto into, std::int64_t count) { std::copy_n(from, count, into); });
        }
      }
      if (copied != elements.size()) {
        fail("{}: has {} of {} elements of {} {}", folder_.string(), copied, elements.size(), tensor.whole.name,
             kTensorKindNames[static_cast<std::size_t>(kind)]);
      }
    });
  }
}

void CheckpointReader::read_factor(const CurvatureFactor& factor, std::span<float> out) const {
  std::ranges::fill(out, 0.0F);
  const auto sources = sources_.find({factor.tensor, factor.kind()});
  if (sources == sources_.end()) fail("{}: has no factors of {}", folder_.string(), factor.tensor);
  const std::int64_t width = factor.average.columns;
  std::int64_t first_row = 0;
  for (const ElementRange& rows : factor.rows) {
    std::int64_t first_column = 0;
    for (const ElementRange& columns : factor.rows) {
      std::vector<float> block(static_cast<std::size_t>(rows.size() * columns.size()));
      const PlacedPart<float> to{rows, columns, {0, std::ssize(block)}, block};
      for (const Source& source : sources->second) {
        const StoredPiece& piece = *source.piece;
        for_common({piece.rows, piece.columns, piece.elements, source.data}, to,
                   [](auto from, auto into, std::int64_t count) { std::copy_n(from, count, into); });
      }
      for (std::int64_t row = 0; row < rows.size(); ++row) {
        std::copy_n(block.begin() + row * columns.size(), columns.size(),
                    out.begin() + (first_row + row) * width + first_column);
      }
      first_column += columns.size();
    }
    first_row += rows.size();
  }
}

std::span<const float> CheckpointReader::basis_of(const HeldTensor& tensor, std::int64_t elements) const {
  const StoredPiece wanted = piece_of_basis(tensor, elements);
  const auto sources = sources_.find({wanted.tensor, wanted.kind});
  if (sources == sources_.end()) return {};
  for (const Source& source : sources->second) {
    const StoredPiece& piece = *source.piece;
    if (piece.rows == wanted.rows && piece.columns == wanted.columns && piece.elements == wanted.elements) {
      return source.data;
    }
  }
  return {};
}

template <class Part>
void CheckpointReader::add_up(const std::string& tensor, TensorKind kind, const Part& to) const {
  const auto sources = sources_.find({tensor, kind});
  if (sources == sources_.end()) return;
  for (const Source& source : sources->second) {
    const StoredPiece& piece = *source.piece;
    for_common({piece.rows, piece.columns, piece.elements, source.data}, to,
               [](auto from, auto into, auto count) { std::transform(from, from + count, into, into, std::plus<>()); });
  }
}

void CheckpointReader::add_up_errors(const std::vector<HeldTensor>& tensors, ElementRange range,
                                     std::span<float> sums) const {
  std::ranges::fill(sums, 0.0F);
  for (const HeldTensor& tensor : tensors) {
    const ElementRange in_part{range.begin - tensor.offset, range.end - tensor.offset};
    for_each_rectangle(tensor, in_part, [&](auto rows, auto columns, ElementRange elements, std::int64_t at) {
      const PlacedPart<float> to{rows, columns, elements, sums.subspan(tensor.offset + at - range.begin)};
      for (const TensorKind kind : {TensorKind::gradient_error, TensorKind::sum_error}) {
        add_up(tensor.whole.name, kind, to);
      }
    });
  }
}

namespace {

// All that any rank has held back of a shard goes on at the rank that has this shard, so nothing is lost, however many
// ranks there were and are.
void load_errors(const CheckpointReader& checkpoint, const RankView& view, const ParameterStates& parameters,
                 const ParameterState& p) {
  if (!p.gradient_error.valid() || is_tied_head(p)) return;  // the embedding's stage takes those of both
  const ElementRange shard = view.own_shard(p.elements, p.group);
  std::vector<float> sums(shard.size());
  checkpoint.add_up_errors(p.tensors, shard, sums);
  for (const HeldErrors& held : parameters.errors_of(p)) {
    if (held.of_sum || shard.begin < held.elements.begin || shard.end > held.elements.end) continue;
    const std::int64_t begin = shard.begin - held.elements.begin;
    view.memory().write(sums, held.errors.slice(begin, begin + shard.size()));
    return;
  }
}

// What another layout left is of no use; a run then begins with a basis of its own.
void load_bases(const CheckpointReader& checkpoint, const RankView& view, const ParameterStates& parameters,
                const ParameterState& p) {
  for (const HeldBasis& basis : parameters.bases_of(p)) {
    const std::span<const float> stored = checkpoint.basis_of(*basis.tensor, basis.factor.size);
    if (!stored.empty()) view.memory().write(stored, basis.factor);
  }
}

}  // namespace

void load_state(const CheckpointReader& checkpoint, const RankView& view, const ParameterStates& parameters,
                const std::vector<TensorKind>& kinds) {
  std::vector<float> numbers;
  const auto read = [&](const ParameterState& p, TensorKind kind, ElementRange range) {
    numbers.resize(range.size());
    checkpoint.read(p.tensors, kind, range, numbers);
    return std::span<const float>(numbers);
  };
  for (const ParameterState& p : parameters.all()) {
    for (const TensorKind kind : kinds) {
      if (is_of_curvature(kind)) continue;  // load_curvature() has those
      if (kind == TensorKind::weight) {
        parameters.set_weights(p, [&](ElementRange range) { return read(p, kind, range); });
      } else {
        const Vector moment = parameters.own_moment(p, static_cast<int>(kind) - 1);
        view.memory().write(read(p, kind, parameters.own(p)), moment);
      }
    }
    load_errors(checkpoint, view, parameters, p);
    load_bases(checkpoint, view, parameters, p);
  }
}

}  // namespace weft
