// Keeps track of where every rank has its copy or partial sum of every piece, so that a generator only says which
// pieces go from whom to whom. (For all collectives but all_to_all, which would need N^2 P places.)
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collective/program_builder.hpp"

namespace weft {

using Pieces = std::vector<std::int64_t>;
// first, first + 1, ...
Pieces consecutive(std::int64_t first, std::int64_t count);

struct Move {
  std::int64_t from = 0;
  std::int64_t to = 0;
  Pieces pieces = {};
  std::int64_t messages = 1;  // the pieces are spread over so many, or more where the slots do not follow each other
  std::int64_t channel = 0;
  // The first of consecutive slots; otherwise Holdings::at and Holdings::room.
  std::optional<SlotRef> src = std::nullopt;
  std::optional<SlotRef> dst = std::nullopt;
};

class Holdings {
 public:
  // Begins with the precondition of the builder's collective.
  explicit Holdings(ProgramBuilder& builder);

  ProgramBuilder& builder() { return builder_; }
  SlotRef at(std::int64_t rank, std::int64_t piece) const;
  // Returns where a rank may write a piece: its place in the output or, in place, in the input; otherwise a scratch
  // slot that stays reserved for the piece.
  SlotRef room(std::int64_t rank, std::int64_t piece);

  // What `from` holds also lies at `to`.
  void copy(const Move& move) { carry(move, false); }
  // `to` adds it to what it holds; where it holds nothing yet (a server), it is a copy.
  void reduce(const Move& move) { carry(move, true); }
  // Copies what a rank holds, and its output needs, into its output.
  void settle();

 private:
  void carry(const Move& move, bool reduce);
  // The part of a move that is one message, or one per run of slots.
  struct Message {
    std::int64_t from, to, channel;
    std::vector<SlotRef> src, dst;
    Pieces pieces;
  };
  void send(const Message& message, bool reduce);
  SlotRef canonical(std::int64_t rank, SlotRef slot) const;

  ProgramBuilder& builder_;
  std::vector<std::vector<SlotRef>> at_, output_, room_;  // by rank, piece; slot -1: none
  std::vector<std::int64_t> scratch_;                     // by rank: slots given away
};

}  // namespace weft
