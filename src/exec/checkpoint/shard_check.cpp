#include "exec/checkpoint/shard_check.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "exec/checkpoint/checkpoint_folder.hpp"
#include "graph/kfac.hpp"
#include "graph/parameter_tensors.hpp"

namespace weft {
namespace {

constexpr const char* kRunKey = "weft_run_id";
constexpr const char* kStepKey = "weft_step";
constexpr const char* kRankKey = "weft_rank";

std::string value_of(const SafetensorsMetadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? "none" : found->second;
}

void check_origin(const std::string& place, const CheckpointManifest& manifest, const StoredFile& file,
                  const SafetensorsMetadata& metadata) {
  if (const std::string run = value_of(metadata, kRunKey); run != manifest.run_id) {
    fail("{} is of run {}, the manifest of run {}: shards of two runs are mixed", place, run, manifest.run_id);
  }
  if (const std::string step = value_of(metadata, kStepKey); step != std::to_string(manifest.step)) {
    fail("{} is of step {}, the manifest of step {}", place, step, manifest.step);
  }
  const std::string rank = value_of(metadata, kRankKey);
  if (file.name != fmt::format("rank-{:0>5}.safetensors", rank)) fail("{} is the shard of rank {}", place, rank);
}

void check_piece(const std::string& place, const StoredPiece& piece, const PlacedTensor& tensor) {
  if (tensor.begin != piece.offset) {
    fail("{}: {} begins at byte {}, the manifest says {}", place, piece.name(), tensor.begin, piece.offset);
  }
  const std::vector<std::int64_t> flat{piece.elements.size()}, matrix{piece.rows.size(), piece.columns.size()};
  if (tensor.shape == flat || (piece.is_rectangle() && tensor.shape == matrix)) return;
  fail("{}: {} has another shape than the manifest says", place, piece.name());
}

using PiecesOfTensor = std::vector<const StoredPiece*>;

bool is_within(const StoredPiece& piece, std::int64_t rows, std::int64_t columns) {
  return piece.rows.end <= rows && piece.columns.end <= columns;
}

// Ranks cut a tensor into rectangles that do not overlap, and share a rectangle by parts of its elements.
const StoredPiece* find_overlap(PiecesOfTensor& pieces) {
  const auto rectangle = [](const StoredPiece& p) {
    return std::tuple(p.rows.begin, p.rows.end, p.columns.begin, p.columns.end);
  };
  std::erase_if(pieces, [](const StoredPiece* p) { return p->elements.empty(); });
  std::ranges::sort(pieces, {}, [&](const StoredPiece* p) {
    return std::tuple_cat(rectangle(*p), std::tuple(p->elements.begin, p->elements.end));
  });
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const StoredPiece& one = *pieces[i];
    for (std::size_t k = i + 1; k < pieces.size() && pieces[k]->rows.begin < one.rows.end; ++k) {
      const StoredPiece& other = *pieces[k];
      if (rectangle(one) == rectangle(other)) {
        if (other.elements.begin < one.elements.end) return &other;
        break;  // the last piece of this rectangle is compared with those of the rectangles that follow
      }
      if (!overlap(one.columns, other.columns).empty()) return &other;
    }
  }
  return nullptr;
}

std::string in_words(const ParameterTensor& tensor, TensorKind kind) {
  return fmt::format("{} {}", tensor.name, kTensorKindNames[static_cast<std::size_t>(kind)]);
}

void check_places(const std::string& name, const std::string& what, std::int64_t rows, std::int64_t columns,
                  PiecesOfTensor& pieces) {
  for (const StoredPiece* piece : pieces) {
    if (!is_within(*piece, rows, columns)) fail("{}: {} lies outside the tensor", name, piece->name());
  }
  if (const StoredPiece* twice = find_overlap(pieces)) {
    fail("{}: has elements of {} twice, as {} and elsewhere", name, what, twice->name());
  }
}

void check_tensor(const std::string& name, const ParameterTensor& tensor, TensorKind kind, PiecesOfTensor pieces) {
  const std::int64_t size = tensor.elements(), rows = tensor.shape.front();
  check_places(name, in_words(tensor, kind), rows, size / rows, pieces);
  std::int64_t found = 0;
  for (const StoredPiece* piece : pieces) found += piece->elements.size();
  if (found != size) fail("{}: has {} of {} elements of {}", name, found, size, in_words(tensor, kind));
}

// A tensor-parallel rank has the block of its own part of the layer, so the diagonal is there in any case.
void check_factor(const std::string& name, const ParameterTensor& weight, TensorKind kind, PiecesOfTensor pieces) {
  const std::int64_t rows = weight.shape.front();
  const std::int64_t size = kind == TensorKind::output_factor ? rows : weight.elements() / rows;
  check_places(name, in_words(weight, kind), size, size, pieces);
  std::int64_t found = 0;
  for (const StoredPiece* piece : pieces) {
    if (!piece->is_rectangle()) fail("{}: {} is no whole block of a factor", name, piece->name());
    found += std::max<std::int64_t>(0, overlap(piece->rows, piece->columns).size());
  }
  if (found != size) {
    fail("{}: has {} of {} elements of the diagonal of {}", name, found, size, in_words(weight, kind));
  }
}

}  // namespace

SafetensorsMetadata shard_metadata(const std::string& run_id, std::int64_t step, std::int64_t rank) {
  return {{kRunKey, run_id}, {kStepKey, std::to_string(step)}, {kRankKey, std::to_string(rank)}};
}

void check_shard(const std::filesystem::path& checkpoint, const CheckpointManifest& manifest, const StoredFile& file) {
  const std::string place = fmt::format("{}: {}", checkpoint.string(), file.name);
  const SafetensorsHeader header = read_safetensors_header(checkpoint / file.name);
  if (!manifest.run_id.empty()) check_origin(place, manifest, file, header.metadata);
  std::map<std::string_view, const PlacedTensor*> tensors;
  for (const PlacedTensor& tensor : header.tensors) tensors[tensor.name] = &tensor;
  for (const StoredPiece& piece : file.pieces) {
    const auto found = tensors.find(piece.name());
    if (found == tensors.end()) fail("{} has no {}, or the manifest names it twice", place, piece.name());
    check_piece(place, piece, *found->second);
    tensors.erase(found);
  }
  if (!tensors.empty()) fail("{} has {}, which the manifest does not name", place, tensors.begin()->first);
}

void check_cover(const std::string& name, const CheckpointManifest& manifest, const Transformer& model,
                 const std::vector<TensorKind>& kinds) {
  std::map<std::pair<std::string_view, TensorKind>, PiecesOfTensor> pieces;
  for (const StoredFile& file : manifest.files) {
    for (const StoredPiece& piece : file.pieces) pieces[{piece.tensor, piece.kind}].push_back(&piece);
  }
  for (const ParameterPlace& place : parameter_places(model)) {
    for (const ParameterTensor& tensor : parameter_tensors(model, place.layer, place.role)) {
      for (const TensorKind kind : kinds) {
        if (!is_of_curvature(kind)) check_tensor(name, tensor, kind, pieces[{tensor.name, kind}]);
      }
    }
    if (!has_curvature(place.role)) continue;
    const ParameterTensor weight = parameter_tensors(model, place.layer, place.role).front();
    for (const TensorKind kind : kinds) {
      if (is_of_curvature(kind)) check_factor(name, weight, kind, pieces[{weight.name, kind}]);
    }
  }
}

}  // namespace weft
