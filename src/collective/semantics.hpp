// What a collective *is*: which piece of the data, with whose contributions, lies where before and after.
//
// The data of a collective is cut into numbered pieces. A buffer is a row of slots, each holding one piece.
//
//   collective               input slots      output slots     piece in slot i of rank r
//   broadcast                P at the root    P                i
//   reduce                   P                P at the root    i
//   all_reduce               P                P                i
//   all_gather, gather       P/N              P (at the root)  input r P/N + i, output i
//   reduce_scatter, scatter  P (at the root)  P/N              input i, output r P/N + i
//   all_to_all               P                P                input (r, i), output (i div P/N, r P/N + i mod P/N)
//   send_recv                P at the root    P at the other   i
// A barrier is an all_reduce of one piece without bytes.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/element_type.hpp"
#include "collective/collective.hpp"
#include "collective/rank_set.hpp"

namespace weft {

enum class ReduceOp : std::uint8_t { sum, average, max, min };
std::string_view name_of(ReduceOp op);

struct CollectiveSpec {
  Collective kind = Collective::all_reduce;
  std::int64_t ranks = 1;   // members
  std::int64_t root = 0;    // of broadcast, reduce, gather, scatter; the sender of send_recv
  std::int64_t pieces = 1;  // P above; a multiple of the ranks where a buffer is divided among them
  friend bool operator==(const CollectiveSpec&, const CollectiveSpec&) = default;
};

// Throws Error where ranks, root or pieces make no sense together; `what` opens the message.
void validate(const CollectiveSpec& spec, std::string_view what);

bool has_root(Collective kind);
bool reduces(Collective kind);
// Returns whether a rank's own part is P/N of the buffer (all_gather, reduce_scatter, gather, scatter, all_to_all).
bool is_divided(Collective kind);

struct Content {
  std::int64_t piece = -1;
  RankSet from;  // whose contributions are summed in it; of a copy, whose it is
  friend bool operator==(const Content&, const Content&) = default;
};

// Pieces with a number: P, and N P for all_to_all.
std::int64_t piece_count(const CollectiveSpec& spec);
std::int64_t input_slots(const CollectiveSpec& spec, std::int64_t rank);
std::int64_t output_slots(const CollectiveSpec& spec, std::int64_t rank);
// The precondition: what an input slot holds.
Content initial_content(const CollectiveSpec& spec, std::int64_t rank, std::int64_t slot);
// The postcondition: what an output slot must hold in the end.
Content required_content(const CollectiveSpec& spec, std::int64_t rank, std::int64_t slot);

// In place, input and output are one buffer of max(input, output) slots. Where a named slot lies in it.
std::int64_t in_place_slot_of_input(const CollectiveSpec& spec, std::int64_t rank, std::int64_t slot);
std::int64_t in_place_slot_of_output(const CollectiveSpec& spec, std::int64_t rank, std::int64_t slot);

}  // namespace weft
