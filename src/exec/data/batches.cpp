#include "exec/data/batches.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/error.hpp"
#include "base/mix.hpp"

namespace weft {
namespace {

// A shuffle that needs no table: place `index` of a random order of 0..count-1. Four rounds of a Feistel network
// permute the numbers below a power of four; those that fall outside go round again (Black and Rogaway 2002, "cycle
// walking"), on average less than four times.
class Shuffle {
 public:
  Shuffle(std::uint64_t key, std::uint64_t count)
      : key_(key), count_(count), half_bits_(std::max(1, (static_cast<int>(std::bit_width(count - 1)) + 1) / 2)) {}

  std::uint64_t operator()(std::uint64_t index) const {
    do {
      index = permute(index);
    } while (index >= count_);
    return index;
  }

 private:
  std::uint64_t permute(std::uint64_t x) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
    std::uint64_t left = x >> half_bits_, right = x & mask;
    for (std::uint64_t round = 0; round < 4; ++round) {
      const std::uint64_t mixed = left ^ (mix_bits(mix_bits(key_ + round) ^ right) & mask);
      left = right;
      right = mixed;
    }
    return left << half_bits_ | right;
  }

  std::uint64_t key_, count_;
  int half_bits_;
};

void check_tokens(const Corpus& corpus, std::int64_t vocab) {
  if (vocab >= 256) return;
  const auto bytes = corpus.bytes();
  const auto found = std::ranges::find_if(bytes, [&](std::uint8_t byte) { return byte >= vocab; });
  if (found == bytes.end()) return;
  fail("{}: byte {} at offset {} has no token in a vocabulary of {}; give --vocab 256 or more", corpus.name(), *found,
       found - bytes.begin(), vocab);
}

}  // namespace

Batches::Batches(std::shared_ptr<const Corpus> corpus, const BatchShape& shape, std::uint64_t seed)
    : corpus_(std::move(corpus)), shape_(shape), seed_(seed) {
  WEFT_CHECK(shape.seq > 0 && shape.micro_batch > 0 && shape.data_ranks > 0);
  WEFT_CHECK(shape.global_batch % (shape.micro_batch * shape.data_ranks) == 0);
  if (sequences_per_epoch() < 1) {
    fail("{}: {} bytes are too few for one sequence; --seq {} needs {}", corpus_->name(), corpus_->bytes().size(),
         shape.seq, shape.seq + 1);
  }
  check_tokens(*corpus_, shape.vocab);
}

std::int64_t Batches::sequences_per_epoch() const {
  return (static_cast<std::int64_t>(corpus_->bytes().size()) - 1) / shape_.seq;
}

void Batches::fill(std::int64_t step, std::int64_t data_rank, std::int64_t micro_batch, std::span<std::int64_t> tokens,
                   std::span<std::int64_t> targets) const {
  const std::size_t seq = shape_.seq;
  const std::int64_t per_rank = shape_.global_batch / shape_.data_ranks;
  WEFT_CHECK(data_rank >= 0 && data_rank < shape_.data_ranks);
  WEFT_CHECK(micro_batch >= 0 && micro_batch < per_rank / shape_.micro_batch);
  WEFT_CHECK(tokens.size() == static_cast<std::size_t>(shape_.micro_batch) * seq && targets.size() == tokens.size());
  const std::int64_t first = step * shape_.global_batch + data_rank * per_rank + micro_batch * shape_.micro_batch;
  const std::int64_t count = sequences_per_epoch();
  for (std::int64_t b = 0; b < shape_.micro_batch; ++b) {
    const auto epoch = static_cast<std::uint64_t>((first + b) / count);
    const Shuffle shuffle(mix_bits(mix_bits(seed_) + epoch), static_cast<std::uint64_t>(count));
    const std::size_t sequence = shuffle(static_cast<std::uint64_t>((first + b) % count));
    const auto bytes = corpus_->bytes().subspan(sequence * seq, seq + 1);
    const std::size_t row = static_cast<std::size_t>(b) * seq;
    std::copy(bytes.begin(), bytes.end() - 1, tokens.begin() + static_cast<std::ptrdiff_t>(row));
    std::copy(bytes.begin() + 1, bytes.end(), targets.begin() + static_cast<std::ptrdiff_t>(row));
  }
}

std::vector<std::int64_t> sequences_of_steps(const Batches& batches, const BatchShape& shape, std::int64_t steps) {
  const auto seq = static_cast<std::size_t>(shape.seq), rows = static_cast<std::size_t>(shape.micro_batch);
  const std::int64_t micro_batches = shape.global_batch / shape.data_ranks / shape.micro_batch;
  std::vector<std::int64_t> tokens(rows * seq), targets(rows * seq), all;
  all.reserve(steps * shape.global_batch * (seq + 1));
  for (std::int64_t step = 0; step < steps; ++step) {
    for (std::int64_t m = 0; m < shape.data_ranks * micro_batches; ++m) {
      batches.fill(step, m / micro_batches, m % micro_batches, tokens, targets);
      for (std::size_t row = 0; row < rows; ++row) {
        const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(row * seq);
        all.insert(all.end(), begin, begin + shape.seq);
        all.push_back(targets[(row + 1) * seq - 1]);
      }
    }
  }
  return all;
}

}  // namespace weft
