#include "exec/row_ranges.hpp"

#include "base/error.hpp"
#include "graph/operation_part.hpp"
#include "graph/own_rows.hpp"

namespace weft {
namespace {

void append(std::vector<ElementRange>& ranges, ElementRange next) {
  if (!ranges.empty() && ranges.back().end == next.begin) {
    ranges.back().end = next.end;
  } else {
    ranges.push_back(next);
  }
}

// Tokens of a sequence that tensor-parallel ranks hold together, and each of them.
struct SequenceRows {
  std::int64_t all, each;
};
SequenceRows rows_of_sequence(const Layout& layout) {
  const std::int64_t all = layout.seq / layout.cp;
  return {all, layout.sequence_parallel ? all / layout.tp : all};
}

// Calls `visit(sequence, rows within the shard's part of it)` for the sequences that `of_shard` touches.
template <class Visit>
void for_each_sequence(std::int64_t each, ElementRange of_shard, Visit visit) {
  for (std::int64_t at = of_shard.begin; at < of_shard.end;) {
    const std::int64_t sequence = at / each, end = std::min(of_shard.end, (sequence + 1) * each);
    visit(sequence, ElementRange{at - sequence * each, end - sequence * each});
    at = end;
  }
}

}  // namespace

std::vector<ElementRange> row_ranges(const Layout& layout, std::int64_t rows, const Origin& part, std::int64_t own) {
  const TokenRows tokens = token_rows(layout);
  const bool of_others = part.axis == kOwnFirstAxis;
  WEFT_CHECK(!is_own_piece(part));
  if (tokens.shards == 1 || rows != tokens.shards * tokens.rows) return {part_range(rows, part)};
  const auto [all, each] = rows_of_sequence(layout);
  std::vector<ElementRange> ranges;
  const Origin of_shard =
      of_others ? Origin{part.operation, kTokenAxis, part.begin - 1, part.end - 1, part.of - 1} : part;
  for_each_sequence(each, part_range(tokens.rows, of_shard), [&](std::int64_t sequence, ElementRange in_part) {
    for (std::int64_t r = 0; r < tokens.shards; ++r) {
      if (of_others && r == own) continue;
      const std::int64_t first = sequence * all + r * each;
      append(ranges, {first + in_part.begin, first + in_part.end});
    }
  });
  return ranges;
}

std::vector<OwnRows> own_row_ranges(const Layout& layout, std::int64_t own) {
  const auto [all, each] = rows_of_sequence(layout);
  std::vector<OwnRows> ranges;
  for (std::int64_t sequence = 0; sequence < layout.micro_batch; ++sequence) {
    const std::int64_t first = sequence * all + own * each;
    ranges.push_back({{first, first + each}, {sequence * each, (sequence + 1) * each}});
  }
  return ranges;
}

}  // namespace weft
