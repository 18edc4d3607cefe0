// What a checkpoint says of itself (docs/checkpoint-format.md): which run it is of, and which elements of which tensors
// lie where. Nothing in it depends on how the ranks were laid out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/element_range.hpp"

namespace weft {

// Of errors of gradients there may be several pieces with the same elements; the sum of all errors counts. The basis of
// PowerSGD is no part of the tensor: it belongs to the part of it that a rank holds, which rows and columns say.
// Factors of K-FAC's curvature have a row and a column for every input, or for every output, of the layer whose weight
// it is.
enum class TensorKind : std::uint8_t {
  weight,
  first_moment,
  second_moment,
  gradient_error,
  sum_error,
  basis,
  input_factor,
  output_factor
};
inline constexpr std::string_view kTensorKindNames[] = {"weight",    "first_moment", "second_moment", "gradient_error",
                                                        "sum_error", "basis",        "input_factor",  "output_factor"};
constexpr bool is_of_curvature(TensorKind kind) {
  return kind == TensorKind::input_factor || kind == TensorKind::output_factor;
}

// Elements `elements` of the rectangle rows x columns of a tensor, the rectangle taken row by row.
struct StoredPiece {
  std::string tensor;  // its name in the model
  TensorKind kind = TensorKind::weight;
  ElementRange rows, columns, elements;
  std::int64_t offset = 0;  // of its first byte in the file

  bool is_rectangle() const { return elements.size() == rows.size() * columns.size(); }
  // In the safetensors file: "weight/layers.0.qkv.weight[0:8,0:24]", and "[3:9]" behind it where it is no rectangle.
  std::string name() const;
  friend bool operator==(const StoredPiece&, const StoredPiece&) = default;
};

struct StoredFile {
  std::string name;
  std::int64_t bytes = 0;
  std::uint32_t checksum = 0;
  std::vector<StoredPiece> pieces;
  friend bool operator==(const StoredFile&, const StoredFile&) = default;
};

struct CheckpointManifest {
  std::int64_t step = 0;  // that many have been trained
  std::string run;        // JSON: model, optimizer, seed, global_batch, ... (run_identity.hpp); empty says nothing
  std::vector<StoredFile> files;
  std::string run_id = {};  // of the run that saved it (run_id.hpp); empty in version 1 of the format, which had none
  std::int64_t bytes() const;  // of all files
};

std::string manifest_text(const CheckpointManifest& manifest);
std::uint32_t checksum_of(const CheckpointManifest& manifest);
// Throws Error that begins with `name`: no JSON, changed since it was written, another version, a key that is missing.
CheckpointManifest parse_manifest(const std::string& text, const std::string& name);

// One rank's part of a manifest, for the rank that puts them together.
std::string stored_file_text(const StoredFile& file);
StoredFile parse_stored_file(const std::string& text, const std::string& name);

}  // namespace weft
