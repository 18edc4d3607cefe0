// Gradients of several ranks through encoding, transfers and sums, as ranks of a run do it but in one process, for
// tests/compression_oracle_test.py, which says the same in numpy.
//
//   compression_chain FORMAT RANKS ZERO ELEMENTS STEPS SEED < gradients > results
//
// stdin has fp32 gradients [step][rank][element]; stdout gets what is applied [step][element], then the errors that
// ranks hold at the end [rank][element].
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/error.hpp"
#include "kernels/encode_on_host.hpp"

namespace weft {
namespace {

using Floats = std::vector<float>;
using EncodedBytes = std::vector<std::byte>;

struct ChainSettings {
  CompressionFormat format = CompressionFormat::none;
  std::int64_t ranks = 0, zero = 0, elements = 0, steps = 0;
  std::uint64_t seed = 0;

  std::int64_t shard() const { return (elements + ranks - 1) / ranks; }
  // What one rank sends once, and everybody adds up.
  bool gathers_summands() const { return zero == 0 && ranks == 2; }
};

// Encodings of a run draw from different seeds; the script computes the same number.
std::uint64_t seed_of(const ChainSettings& c, std::int64_t step, std::int64_t rank, bool of_sum) {
  return c.seed + static_cast<std::uint64_t>(1000 * step + 2 * rank + (of_sum ? 1 : 0));
}

Vector vector_of(Floats& values) {
  return {values.data(), std::ssize(values)};
}

EncodedShards shards_in(const ChainSettings& c, std::int64_t elements, std::int64_t shards, EncodedBytes& bytes) {
  return {c.format, elements, shards, {{bytes.data(), ElementType::u8}, std::ssize(bytes)}};
}

EncodedBytes room_for(const ChainSettings& c, std::int64_t elements, std::int64_t shards) {
  return EncodedBytes(static_cast<std::size_t>(shards * encoded_bytes(c.format, elements).value));
}

class Chain {
 public:
  explicit Chain(const ChainSettings& settings)
      : settings_(settings),
        errors_(static_cast<std::size_t>(settings.ranks), Floats(static_cast<std::size_t>(settings.elements))),
        sum_errors_(static_cast<std::size_t>(settings.ranks)) {
    for (std::int64_t r = 0; r < settings.ranks; ++r) sum_errors_[r].resize(own(r));
  }

  Floats apply(std::vector<Floats>& gradients, std::int64_t step) {
    const ChainSettings& c = settings_;
    const std::int64_t shard = c.gathers_summands() ? c.elements : c.shard();
    const std::int64_t shards = c.gathers_summands() ? 1 : c.ranks;
    std::vector<EncodedBytes> sent;
    for (std::int64_t r = 0; r < c.ranks; ++r) {
      sent.push_back(room_for(c, shard, shards));
      encode_on_host(vector_of(gradients[r]), vector_of(errors_[r]), {seed_of(c, step, r, false)},
                     shards_in(c, shard, shards, sent.back()), nullptr);
    }
    if (c.gathers_summands()) return sum_of(all_of(sent), c.elements);
    Floats whole;
    EncodedBytes sums;
    for (std::int64_t r = 0; r < c.ranks; ++r) {
      Floats sum = sum_of(summands_of(sent, r), own(r));
      if (c.zero == 1) {
        whole.insert(whole.end(), sum.begin(), sum.end());
        continue;
      }
      EncodedBytes encoded = room_for(c, shard, 1);
      encode_on_host(vector_of(sum), vector_of(sum_errors_[r]), {seed_of(c, step, r, true)},
                     shards_in(c, shard, 1, encoded), nullptr);
      sums.insert(sums.end(), encoded.begin(), encoded.end());
    }
    if (c.zero == 1) return whole;
    whole.resize(static_cast<std::size_t>(c.elements));
    decode_sum_on_host(shards_in(c, shard, c.ranks, sums), 1, vector_of(whole), Into::overwrite);
    return whole;
  }

  // Returns all that rank r holds back of each element.
  Floats held(std::int64_t r) const {
    Floats errors = errors_[r];
    for (std::size_t i = 0; i < sum_errors_[r].size(); ++i) errors[r * settings_.shard() + i] += sum_errors_[r][i];
    return errors;
  }

 private:
  std::size_t own(std::int64_t rank) const {
    const std::int64_t begin = std::min(settings_.elements, rank * settings_.shard());
    return static_cast<std::size_t>(std::min(settings_.elements, begin + settings_.shard()) - begin);
  }

  static EncodedBytes all_of(const std::vector<EncodedBytes>& sent) {
    EncodedBytes all;
    for (const EncodedBytes& bytes : sent) all.insert(all.end(), bytes.begin(), bytes.end());
    return all;
  }

  // The all-to-all: shard `rank` of everybody.
  EncodedBytes summands_of(const std::vector<EncodedBytes>& sent, std::int64_t rank) const {
    EncodedBytes summands;
    for (const EncodedBytes& bytes : sent) {
      const std::ptrdiff_t size = std::ssize(bytes) / settings_.ranks;
      summands.insert(summands.end(), bytes.begin() + rank * size, bytes.begin() + (rank + 1) * size);
    }
    return summands;
  }

  Floats sum_of(EncodedBytes summands, std::size_t size) const {
    Floats sum(size);
    const std::int64_t shard = settings_.gathers_summands() ? settings_.elements : settings_.shard();
    if (size > 0)
      decode_sum_on_host(shards_in(settings_, shard, 1, summands), settings_.ranks, vector_of(sum), Into::overwrite);
    return sum;
  }

  ChainSettings settings_;
  std::vector<Floats> errors_, sum_errors_;  // by rank
};

void read_floats(Floats& values) {
  if (std::fread(values.data(), sizeof(float), values.size(), stdin) != values.size()) fail("stdin is too short");
}

void write_floats(const Floats& values) {
  if (std::fwrite(values.data(), sizeof(float), values.size(), stdout) != values.size()) fail("stdout is closed");
}

void run(const ChainSettings& settings) {
  Chain chain(settings);
  std::vector<Floats> gradients(static_cast<std::size_t>(settings.ranks),
                                Floats(static_cast<std::size_t>(settings.elements)));
  for (std::int64_t step = 0; step < settings.steps; ++step) {
    for (Floats& gradient : gradients) read_floats(gradient);
    write_floats(chain.apply(gradients, step));
  }
  for (std::int64_t r = 0; r < settings.ranks; ++r) write_floats(chain.held(r));
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  try {
    if (argc != 7) weft::fail("needs FORMAT RANKS ZERO ELEMENTS STEPS SEED");
    const auto format = weft::parse_compression_format(argv[1]);
    if (!format || *format == weft::CompressionFormat::none) weft::fail("'{}' is no format", argv[1]);
    const auto number = [&](int i) { return std::strtoll(argv[i], nullptr, 10); };
    weft::run({*format, number(2), number(3), number(4), number(5), static_cast<std::uint64_t>(number(6))});
    return 0;
  } catch (const weft::Error& error) {
    fmt::print(stderr, "compression_chain: {}\n", error.what());
    return 2;
  }
}
