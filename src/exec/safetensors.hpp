// Tensors in a file as Hugging Face's safetensors has them: an 8-byte length, a JSON header, the raw numbers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace weft {

struct NamedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> data;
};

// What the header says of a tensor; its numbers follow those of the one before it.
struct TensorHeading {
  std::string name;  // all different
  std::vector<std::int64_t> shape;
};
// What a file says of itself beside its tensors: the format's `__metadata__`, text by name.
using SafetensorsMetadata = std::map<std::string, std::string>;
// All that stands before the numbers of a file with these tensors: its length and the header, a multiple of 8 bytes and
// at least `least_bytes`, so that another metadata need not move the numbers.
std::string safetensors_opening(std::span<const TensorHeading> tensors, const SafetensorsMetadata& metadata = {},
                                std::size_t least_bytes = 0);

// Where a tensor lies in a file.
struct PlacedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, end = 0;  // bytes of the file
};
struct SafetensorsHeader {
  SafetensorsMetadata metadata;
  std::vector<PlacedTensor> tensors;  // by place; one begins where the one before it ends, the last ends with the file
};

// Writes to the side, syncs and renames. Throws Error or RunFailed naming the file.
void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors);
// F32 only. Throws Error naming the file and what is wrong with it (truncated, not safetensors, another type).
std::vector<NamedTensor> read_safetensors(const std::filesystem::path& path);
SafetensorsHeader read_safetensors_header(const std::filesystem::path& path);

}  // namespace weft
