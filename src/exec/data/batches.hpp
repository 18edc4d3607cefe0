// What a rank trains on: bytes of a text, in an order that the seed fixes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace weft {

// A text, memory-mapped or generated. Bytes are tokens.
class Corpus {
 public:
  // Throws Error naming the file where it cannot be read, is empty or no regular file.
  static std::shared_ptr<const Corpus> open(const std::string& path);
  // `bytes` of text with something to learn (words, grammar, arithmetic), the same for the same seed on every machine.
  static std::shared_ptr<const Corpus> generate(std::uint64_t seed, std::int64_t bytes = 1 << 20);
  // The stretch of another's bytes from `begin` to `end`, under its name.
  static std::shared_ptr<const Corpus> part_of(std::shared_ptr<const Corpus> whole, std::size_t begin, std::size_t end);
  virtual ~Corpus() = default;
  virtual std::span<const std::uint8_t> bytes() const = 0;
  virtual const std::string& name() const = 0;  // the path, or "generated text"
};

struct BatchShape {
  std::int64_t global_batch = 1, micro_batch = 1, seq = 1;
  std::int64_t data_ranks = 1;
  std::int64_t vocab = 256;
};

// Sequence i is the seq + 1 bytes from i * seq on: every byte but the first is a target once. An epoch visits every
// sequence of the corpus once, in an order shuffled by (seed, epoch). Sequence g of a step belongs to data rank g /
// (global_batch / data_ranks), and there to micro-batch (g mod that) / micro_batch: so the same step sees the same
// sequences whatever the layout.
class Batches {
 public:
  // Throws Error where the corpus holds not even one sequence, or a byte that the vocabulary has no token for.
  Batches(std::shared_ptr<const Corpus> corpus, const BatchShape& shape, std::uint64_t seed);
  // Fills micro_batch * seq tokens and targets each. A pure function of its arguments; no allocation.
  void fill(std::int64_t step, std::int64_t data_rank, std::int64_t micro_batch, std::span<std::int64_t> tokens,
            std::span<std::int64_t> targets) const;
  std::int64_t sequences_per_epoch() const;

 private:
  std::shared_ptr<const Corpus> corpus_;
  BatchShape shape_;
  std::uint64_t seed_;
};

// The sequences of the first steps whole, whatever the rank: steps x global_batch x (seq + 1) tokens.
std::vector<std::int64_t> sequences_of_steps(const Batches& batches, const BatchShape& shape, std::int64_t steps);

}  // namespace weft
