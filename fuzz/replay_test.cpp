// Feeds every file of every corpus folder to its fuzz target once, without a fuzzer: what crashed before must not crash
// again. Linked with all *_fuzz.cpp, whose LLVMFuzzerTestOneInput the build calls fuzz_NAME.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#define X(name) extern "C" int fuzz_##name(const std::uint8_t* data, std::size_t size);
WEFT_FUZZ_TARGETS
#undef X

namespace {

namespace fs = std::filesystem;

struct Target {
  const char* name;
  int (*run)(const std::uint8_t* data, std::size_t size);
};

#define X(name) {#name, fuzz_##name},
constexpr Target kTargets[] = {WEFT_FUZZ_TARGETS};
#undef X

// Sorted, so that the first failure is the same on every machine.
std::vector<fs::path> corpus_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::uint8_t> read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

int replay(const Target& target, const fs::path& folder) {
  const std::vector<fs::path> files = corpus_files(folder);
  if (files.empty()) {
    std::fprintf(stderr, "%s: the corpus is empty\n", folder.c_str());
    return 1;
  }
  for (const fs::path& path : files) {
    // Named before it runs: a crash leaves no time for words.
    std::fprintf(stderr, "%s/%s\n", target.name, path.filename().c_str());
    const std::vector<std::uint8_t> bytes = read_bytes(path);
    target.run(bytes.data(), bytes.size());
  }
  std::printf("%s: replayed %zu inputs\n", target.name, files.size());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s CORPUS_FOLDERS\n", argv[0]);
    return 2;
  }
  try {
    int failed = 0;
    for (const Target& target : kTargets) failed |= replay(target, fs::path(argv[1]) / target.name);
    return failed;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "uncaught: %s\n", error.what());
    return 1;
  }
}
