// Checkpoints for tests: a model on any layout, and whole tensors put together from what lies on disk, element by
// element, as any reader of docs/checkpoint-format.md could.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "exec/checkpoint/checkpoint_folder.hpp"
#include "exec/safetensors.hpp"
#include "graph/parameter_tensors.hpp"
#include "planner/test_plans.hpp"

namespace weft::test {

// By kind and name.
using WholeTensors = std::map<std::pair<TensorKind, std::string>, std::vector<float>>;

inline std::map<std::string, std::vector<std::int64_t>> shapes_of(const Transformer& model) {
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const ParameterPlace& place : parameter_places(model)) {
    for (const ParameterTensor& tensor : parameter_tensors(model, place.layer, place.role)) {
      shapes[tensor.name] = tensor.shape;
    }
  }
  return shapes;
}

inline std::size_t size_of(const std::vector<std::int64_t>& shape) {
  std::size_t size = 1;
  for (const std::int64_t n : shape) size *= static_cast<std::size_t>(n);
  return size;
}

// Expects every element of every tensor to be there once.
inline WholeTensors whole_tensors(const std::filesystem::path& checkpoint, const Transformer& model,
                                  const std::vector<TensorKind>& kinds) {
  const CheckpointManifest manifest = read_checkpoint(checkpoint);
  const auto shapes = shapes_of(model);
  WholeTensors whole;
  std::map<std::pair<TensorKind, std::string>, std::vector<int>> times;
  for (const TensorKind kind : kinds) {
    for (const auto& [name, shape] : shapes) {
      whole[{kind, name}].resize(size_of(shape));
      times[{kind, name}].resize(size_of(shape));
    }
  }
  for (const StoredFile& file : manifest.files) {
    std::map<std::string, NamedTensor> stored;
    for (NamedTensor& tensor : read_safetensors(checkpoint / file.name)) stored[tensor.name] = std::move(tensor);
    EXPECT_EQ(stored.size(), file.pieces.size());
    for (const StoredPiece& piece : file.pieces) {
      const NamedTensor& part = stored.at(piece.name());
      const auto& shape = shapes.at(piece.tensor);
      const auto width = static_cast<std::int64_t>(size_of(shape)) / shape.front();
      EXPECT_EQ(std::ssize(part.data), piece.elements.size()) << piece.name();
      for (std::int64_t e = piece.elements.begin; e < piece.elements.end; ++e) {
        const std::int64_t row = piece.rows.begin + e / piece.columns.size();
        const std::int64_t column = piece.columns.begin + e % piece.columns.size();
        const std::size_t at = row * width + column;
        whole.at({piece.kind, piece.tensor}).at(at) = part.data[e - piece.elements.begin];
        ++times.at({piece.kind, piece.tensor}).at(at);
      }
    }
  }
  for (const auto& [key, counts] : times) {
    for (const int count : counts) {
      if (count == 1) continue;
      ADD_FAILURE() << key.second << ": an element is stored " << count << " times";
      break;
    }
  }
  return whole;
}

// A plan on ranks of this machine, in fp32.
struct PlannedLayout {
  PlannedLayout(const Transformer& model, Layout layout, std::int64_t ranks, const std::string& policy,
                std::int64_t micro_batches)
      : request(request_of(model, std::move(layout), ranks, micro_batches)),
        whole(make_whole_plan(request, build(request), policy)) {}

  static PlanRequest request_of(const Transformer& model, Layout layout, std::int64_t ranks,
                                std::int64_t micro_batches) {
    layout.precision = layout.grad_dtype = ElementType::fp32;
    layout.dropout = model.dropout != DropoutRates{};  // a test that wants it says how much
    if (layout.etp == 1) layout.etp = layout.tp;
    if (layout.seq == 0) layout.seq = 8;
    PlanRequest r =
        test::request(model, parse_cluster(fmt::format("local:{},nic=1Gb/s", ranks)), std::move(layout), micro_batches);
    r.options.bucket_mib = 0.01;  // several buckets even here
    r.options.bucket_parameters = 2000;
    return r;
  }

  PlanRequest request;
  WholePlan whole;
};

using WholeSums = std::map<std::string, std::vector<double>>;  // by tensor

// Adds up all pieces of these kinds in a checkpoint, element by element.
inline WholeSums add_up_pieces(const Transformer& model, const std::filesystem::path& checkpoint,
                               const std::vector<TensorKind>& kinds) {
  const auto shapes = shapes_of(model);
  WholeSums sums;
  for (const auto& [name, shape] : shapes) sums[name].resize(size_of(shape));
  for (const StoredFile& file : read_checkpoint(checkpoint).files) {
    std::map<std::string, NamedTensor> stored;
    for (NamedTensor& tensor : read_safetensors(checkpoint / file.name)) stored[tensor.name] = std::move(tensor);
    for (const StoredPiece& piece : file.pieces) {
      if (std::ranges::find(kinds, piece.kind) == kinds.end()) continue;
      const std::vector<float>& data = stored.at(piece.name()).data;
      std::vector<double>& whole = sums.at(piece.tensor);
      const auto width = std::ssize(whole) / shapes.at(piece.tensor).front();
      for (std::int64_t e = piece.elements.begin; e < piece.elements.end; ++e) {
        const std::int64_t row = piece.rows.begin + e / piece.columns.size();
        const std::int64_t column = piece.columns.begin + e % piece.columns.size();
        whole[row * width + column] += data[e - piece.elements.begin];
      }
    }
  }
  return sums;
}

}  // namespace weft::test
