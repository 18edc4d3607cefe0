// Numbers the rows of a rank for dropout: they have those of tokens in the batch of all ranks, so that every layout
// zeroes the same elements.
#pragma once

#include <cstdint>
#include <vector>

#include "base/element_range.hpp"
#include "exec/rank_view.hpp"

namespace weft {

enum class DropoutSite : std::uint8_t { embedding, attention, attention_residual, ffn_residual };

// Returns what the hash of an element starts from (docs/oracle.md). Layer -1 is the embedding.
std::uint64_t dropout_key(std::uint64_t seed, std::int64_t step, std::int32_t layer, DropoutSite site);

// Returns the numbers of a micro-batch's sequences in the batch of all ranks.
std::vector<std::int64_t> sample_numbers(const RankView& view, MicroBatch micro_batch);
// Returns sample * seq + position of these rows of the stream between blocks, for an operation on it; empty `rows` mean
// all.
std::vector<std::int64_t> token_numbers(const RankView& view, const Operation& operation, MicroBatch micro_batch,
                                        ElementRange rows);

}  // namespace weft
