// Tensors in a file as Hugging Face's safetensors has them: an 8-byte length, a JSON header, the raw numbers.
#pragma once

#include <cstdint>
#include <filesystem>
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
// All that stands before the numbers of a file with these tensors: its length and the header, a multiple of 8 bytes.
std::string safetensors_opening(std::span<const TensorHeading> tensors);

// Writes to the side, syncs and renames. Throws Error naming the file.
void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors);
// F32 only. Throws Error naming the file and what is wrong with it (truncated, not safetensors, another type).
std::vector<NamedTensor> read_safetensors(const std::filesystem::path& path);

}  // namespace weft
