// Products that begin with the rows that a rank holds itself. With sequence parallelism a product reads rows that
// tensor-parallel ranks have gathered. Its own shard of them needs no transfer: it is multiplied while the others' rows
// are on their way (nanotron's asynchronous column and row linears, Transformer Engine's ring exchange).
//
// This is a third way to cut an operation (graph/operation_part.hpp). Along this axis piece 0 is the own shard, and
// piece j of the others is pieces j-1..j of `of` - 1 of every other rank's shard, so it reads what part j-1 of a gather
// in `of` - 1 parts brings (a gather that is whole has one). The own piece reads the shard, not the gathered value:
// that is why it waits for no transfer. A part is the own piece alone or others alone.
#pragma once

#include <cstdint>
#include <optional>

#include "graph/step_graph.hpp"

namespace weft {

// What pieces are counted along, beside kTokenAxis and kCapacityAxis.
inline constexpr std::int32_t kOwnFirstAxis = 2;

// Returns the name under which a product reads gathered rows, if its role and phase are those of one that may: its
// input in forward, its output's gradient in backward.
std::optional<Operand> gathered_operand(const Operation& operation);
// Returns the shard that is this rank's share of a gathered value; not valid where no tensor-parallel gather wrote it.
ValueId own_shard_of(const StepGraph& graph, ValueId gathered);
// Returns whether the product reads gathered rows, so that it may begin with its own.
bool may_begin_with_own_rows(const StepGraph& graph, const Operation& operation);

// Returns whether a transfer gathers what such products read.
bool gathers_rows_of_others(const Operation& operation);

bool is_own_piece(const Origin& part);
// Returns the product as its own piece reads it: the shard in place of the gathered value. And back.
Operation reading_own_shard(const StepGraph& graph, const Operation& product);
Operation reading_gathered_rows(const StepGraph& graph, const Operation& own_piece);

// Returns the rows of a part of a product of `rows` rows that `shards` ranks hold equal shares of.
std::int64_t rows_of_part(std::int64_t rows, std::int64_t shards, const Origin& part);
// The reverse: the rows of the whole, by those of a part.
std::int64_t rows_of_whole(std::int64_t rows_of_part, std::int64_t shards, const Origin& part);
// Returns the smallest share of a product's rows that a part of at most `pieces` + 1 may have.
double smallest_share(std::int64_t shards, std::int64_t pieces);

// Returns in how many parts a gather moves as Transformer Engine's ring exchange does, which has shards - 1 steps: the
// next power of two, since rows are cut into equal parts, and 8 at most.
std::int64_t ring_exchange_pieces(std::int64_t shards);

}  // namespace weft
