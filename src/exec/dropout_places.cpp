#include "exec/dropout_places.hpp"

#include "base/mix.hpp"
#include "graph/sharding.hpp"

namespace weft {

std::uint64_t dropout_key(std::uint64_t seed, std::int64_t step, std::int32_t layer, DropoutSite site) {
  constexpr std::uint64_t kSites = 4;
  const std::uint64_t place = kSites * static_cast<std::uint64_t>(layer + 1) + static_cast<std::uint64_t>(site);
  return mix_bits(mix_bits(mix_bits(seed) + static_cast<std::uint64_t>(step)) + place);
}

std::vector<std::int64_t> sample_numbers(const RankView& view, MicroBatch micro_batch) {
  const Layout& layout = view.plan().layout;
  const std::int64_t first =
      view.data_rank() * (layout.global_batch / layout.dp) + micro_batch.value * layout.micro_batch;
  std::vector<std::int64_t> samples;
  for (std::int64_t i = 0; i < layout.micro_batch; ++i) samples.push_back(first + i);
  return samples;
}

std::vector<std::int64_t> token_numbers(const RankView& view, const Operation& operation, MicroBatch micro_batch,
                                        ElementRange rows) {
  const Layout& layout = view.plan().layout;
  std::vector<std::int64_t> of_sequence;  // positions, of the tokens that tensor-parallel ranks hold together
  for (const ElementRange& part : view.positions_held(operation)) {
    for (std::int64_t at = part.begin; at < part.end; ++at) of_sequence.push_back(at);
  }
  const auto length = std::ssize(of_sequence);
  const std::int64_t tokens = layout.micro_batch * length;
  if (rows.empty()) rows = {0, tokens / (layout.sequence_parallel ? layout.tp : 1)};
  const std::vector<std::int64_t> samples = sample_numbers(view, view.micro_batch_of_step(operation, micro_batch));
  std::vector<std::int64_t> numbers;
  const AxisPlace place = layout.sequence_parallel ? AxisPlace{view.coordinate(Axis::tp), layout.tp} : AxisPlace{};
  for (const ElementRange& range : rows_of_share(Share::sequences, {tokens, layout.micro_batch}, place, rows)) {
    for (std::int64_t row = range.begin; row < range.end; ++row) {
      numbers.push_back(samples[row / length] * layout.seq + of_sequence[row % length]);
    }
  }
  return numbers;
}

}  // namespace weft
