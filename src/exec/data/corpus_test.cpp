// Texts from files and out of nothing.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>

#include "base/test_folder.hpp"
#include "exec/data/batches.hpp"

namespace weft {
namespace {

using test::error_of;
using test::ScratchFolder;

TEST(Corpus, HoldsTheBytesOfItsFile) {
  const ScratchFolder folder("corpus");
  const std::string text("a\0\xff\n", 4);
  const auto corpus = Corpus::open(folder.write("text", text));
  EXPECT_EQ(std::string(corpus->bytes().begin(), corpus->bytes().end()), text);
  EXPECT_EQ(corpus->name(), folder.file("text"));
}

TEST(Corpus, IsMappedAndNotRead) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer leaves no room for mappings of this size";
#endif
  // A terabyte with a hole: reading it would take memory and hours.
  const ScratchFolder folder("sparse");
  folder.write("sparse", "begin");
  std::filesystem::resize_file(folder.file("sparse"), std::uintmax_t{1} << 40);
  const auto corpus = Corpus::open(folder.file("sparse"));
  ASSERT_EQ(corpus->bytes().size(), std::size_t{1} << 40);
  EXPECT_EQ(corpus->bytes()[4], 'n');
  EXPECT_EQ(corpus->bytes()[(std::size_t{1} << 40) - 1], 0);
  const Batches batches(corpus, {.seq = 1024}, 1);
  EXPECT_EQ(batches.sequences_per_epoch(), (std::int64_t{1} << 30) - 1);  // 2^40 - 1 targets
}

TEST(Corpus, SaysWhyAFileCannotBeUsed) {
  const ScratchFolder folder("unusable");
  const std::string pipe = folder.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const auto opening = [](const std::string& path) { return error_of([&] { Corpus::open(path); }); };
  EXPECT_EQ(opening(folder.file("absent")), folder.file("absent") + ": cannot be read: No such file or directory");
  EXPECT_EQ(opening(folder.path().string()), folder.path().string() + ": is a folder, not a file");
  EXPECT_EQ(opening(pipe), pipe + ": is a named pipe, not a file");
  EXPECT_EQ(opening(folder.write("empty", "")), folder.file("empty") + ": is empty");
}

TEST(GeneratedCorpus, IsTheSameForTheSameSeed) {
  const auto text = [](std::uint64_t seed, std::int64_t size) {
    const auto corpus = Corpus::generate(seed, size);
    return std::string(corpus->bytes().begin(), corpus->bytes().end());
  };
  EXPECT_EQ(text(1, 5000), text(1, 5000));
  EXPECT_NE(text(1, 5000), text(2, 5000));
  EXPECT_EQ(text(1, 9000).substr(0, 5000), text(1, 5000));
  EXPECT_EQ(text(1, 1).size(), 1U);
}

// Bits per byte for who knows the `context` bytes before it.
double entropy(std::span<const std::uint8_t> bytes, std::size_t context) {
  std::map<std::string, std::array<double, 256>> counts;
  for (std::size_t i = context; i < bytes.size(); ++i) {
    counts[std::string(bytes.begin() + static_cast<std::ptrdiff_t>(i - context),
                       bytes.begin() + static_cast<std::ptrdiff_t>(i))][bytes[i]] += 1;
  }
  double bits = 0;
  for (const auto& [key, row] : counts) {
    double sum = 0;
    for (const double count : row) sum += count;
    for (const double count : row) bits -= count > 0 ? count * std::log2(count / sum) : 0;
  }
  return bits / static_cast<double>(bytes.size() - context);
}

TEST(GeneratedCorpus, HasMoreToLearnTheFurtherOneLooksBack) {
  // Loss falls at once (letters are not equally frequent, 8 bits would be chance) and goes on falling with context.
  const auto corpus = Corpus::generate(1);
  const auto bytes = corpus->bytes();
  EXPECT_EQ(bytes.size(), std::size_t{1} << 20);
  EXPECT_LT(entropy(bytes, 0), 4.8);
  EXPECT_LT(entropy(bytes, 1), 0.75 * entropy(bytes, 0));
  EXPECT_LT(entropy(bytes, 2), 0.75 * entropy(bytes, 1));
  EXPECT_LT(entropy(bytes, 4), 0.75 * entropy(bytes, 2));
  for (const std::uint8_t byte : bytes) ASSERT_LT(byte, 128);
}

TEST(GeneratedCorpus, AddsRight) {
  const auto corpus = Corpus::generate(3, 20'000);
  const std::string text(corpus->bytes().begin(), corpus->bytes().end());
  int sums = 0;
  for (std::size_t plus = text.find(" + "); plus != std::string::npos; plus = text.find(" + ", plus + 1)) {
    const std::size_t begin = text.rfind('\n', plus) + 1, end = text.find('\n', plus);
    if (end == std::string::npos) break;
    int a = 0, b = 0, c = 0;
    ASSERT_EQ(std::sscanf(text.substr(begin, end - begin).c_str(), "%d + %d = %d.", &a, &b, &c), 3);
    EXPECT_EQ(a + b, c);
    ++sums;
  }
  EXPECT_GT(sums, 20);
}

}  // namespace
}  // namespace weft
