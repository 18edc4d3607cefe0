// A program with known sizes, reduced to its true dependencies.
//
// A proven program orders every two instructions that touch one slot (collective/verify), so an instruction only needs
// to wait for those it conflicts with. Fused instructions become a receive and a send. comm/ executes lowered programs,
// cost/ predicts their time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "collective/piece_sizes.hpp"
#include "collective/program.hpp"
#include "collective/verify/symbolic_run.hpp"

namespace weft {

// Bytes of a rank's buffer.
struct ByteRange {
  BufferKind buffer = BufferKind::input;
  std::int64_t begin = 0;
  std::int64_t bytes = 0;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

struct LoweredStep {
  InstructionId origin;
  InstructionKind kind = InstructionKind::copy;  // send, receive, receive_reduce_copy, copy or reduce
  std::int64_t peer = -1;                        // of send and receives: a rank of the program
  std::int64_t channel = 0;
  std::int64_t bytes = 0;
  // Ranges that follow each other are joined; empty ones are left out. `dst` of reduce is also read.
  std::vector<ByteRange> src, dst;
  bool completes = false;           // a reduction whose result holds the contributions of all ranks
  std::vector<std::int32_t> waits;  // steps of this rank whose data it needs or overwrites, ascending
  std::vector<std::int32_t> turn;   // further steps that the program orders before it, although no data requires that
};

// How many messages of a connection may arrive before their destinations are free. The proof needs two. Small messages
// get more, because a sender learns of a free slot only after the way back.
constexpr std::int64_t slots_for(std::int64_t largest_message) {
  constexpr std::int64_t kMinCount = 2, kMaxCount = 16, kBufferBytes = 1 << 20;
  return std::clamp(kBufferBytes / std::max<std::int64_t>(largest_message, 1), kMinCount, kMaxCount);
}

struct LoweredRank {
  std::int64_t input_bytes = 0, output_bytes = 0, scratch_bytes = 0;  // in place, all is output
  std::vector<LoweredStep> steps;  // in an order in which they could run one by one; connections in their order
};

// `run` is the trace of the proof. Throws Error where a piece does not fit into an input or output slot.
std::vector<LoweredRank> lower(const Program& program, const SymbolicRun& run, const PieceSizes& sizes,
                               Bytes element_size);

}  // namespace weft
