// Bytes as a safetensors file: the reader answers with tensors or an Error, and what it accepts can be written so that
// it reads back the same.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "exec/safetensors.hpp"

namespace {

using Tensors = std::vector<weft::NamedTensor>;

// A file in memory that has a path.
std::optional<Tensors> read_bytes(const std::uint8_t* data, std::size_t size) {
  const int file = ::memfd_create("safetensors", 0);
  if (file < 0 || ::write(file, data, size) != static_cast<ssize_t>(size)) std::abort();
  std::optional<Tensors> tensors;
  try {
    tensors = weft::read_safetensors("/proc/self/fd/" + std::to_string(file));
  } catch (const weft::Error&) {
  }
  ::close(file);
  return tensors;
}

bool same(const weft::NamedTensor& a, const weft::NamedTensor& b) {
  return a.name == b.name && a.shape == b.shape && a.data.size() == b.data.size() &&
         (a.data.empty() || std::memcmp(a.data.data(), b.data.data(), a.data.size() * sizeof(float)) == 0);
}

void sort_by_name(Tensors& tensors) {
  std::ranges::sort(tensors, {}, &weft::NamedTensor::name);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::optional<Tensors> tensors = read_bytes(data, size);
  if (!tensors) return 0;
  const auto path = std::filesystem::temp_directory_path() / ("weft_safetensors_fuzz_" + std::to_string(::getpid()));
  weft::write_safetensors(path, *tensors);
  Tensors again = weft::read_safetensors(path);
  std::filesystem::remove(path);
  sort_by_name(*tensors);  // empty tensors share a place, so the order of a file is not unique
  sort_by_name(again);
  if (!std::ranges::equal(*tensors, again, same)) std::abort();
  return 0;
}
