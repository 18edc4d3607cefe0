#include "collective/verify/testing/hand_built.hpp"

namespace weft::testing {
namespace {

using enum InstructionKind;

Program empty(std::string name, Collective kind, std::int64_t ranks, std::int64_t pieces, bool in_place) {
  Program program{.name = std::move(name), .spec = {kind, ranks, 0, pieces}, .in_place = in_place, .ranks = {}};
  program.ranks.resize(ranks);
  return program;
}

SlotRef input(std::int64_t slot) {
  return {BufferKind::input, slot};
}
SlotRef output(std::int64_t slot) {
  return {BufferKind::output, slot};
}
SlotRef scratch(std::int64_t slot) {
  return {BufferKind::scratch, slot};
}

}  // namespace

Program fused_ring_all_reduce(std::int64_t ranks, std::int64_t channels) {
  Program program = empty("fused_ring", Collective::all_reduce, ranks, ranks * channels, true);
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      ThreadBlock block{(rank + 1) % ranks, (rank + ranks - 1) % ranks, channel, {}};
      // Slice s starts at rank s, is complete at rank s - 1 and goes once more around, up to rank s - 2.
      const auto slot = [&](std::int64_t hop) { return output((rank - hop + 2 * ranks) % ranks * channels + channel); };
      block.steps.push_back({send, slot(0), {}, 1, {}});
      for (std::int64_t hop = 1; hop + 1 < ranks; ++hop) {
        block.steps.push_back({receive_reduce_send, slot(hop), {}, 1, {}});
      }
      block.steps.push_back({receive_reduce_copy_send, slot(ranks - 1), slot(ranks - 1), 1, {}});
      for (std::int64_t hop = 0; hop + 2 < ranks; ++hop) {
        block.steps.push_back({receive_copy_send, {}, slot(hop), 1, {}});
      }
      block.steps.push_back({receive, {}, slot(ranks - 2), 1, {}});
      program.ranks[rank].blocks.push_back(std::move(block));
    }
  }
  return program;
}

Program direct_all_to_all(std::int64_t ranks) {
  Program program = empty("direct_by_peer", Collective::all_to_all, ranks, ranks, false);
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    auto& blocks = program.ranks[rank].blocks;
    blocks.push_back({-1, -1, 0, {{copy, input(rank), output(rank), 1, {}}}});
    for (std::int64_t peer = 0; peer < ranks; ++peer) {
      if (peer == rank) continue;
      blocks.push_back({peer, peer, 0, {{send, input(peer), {}, 1, {}}, {receive, {}, output(peer), 1, {}}}});
    }
  }
  return program;
}

Program recursive_doubling_all_gather(std::int64_t ranks) {
  Program program = empty("doubling", Collective::all_gather, ranks, ranks, true);
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    auto& blocks = program.ranks[rank].blocks;
    for (std::int64_t distance = 1; distance < ranks; distance *= 2) {
      const std::int64_t peer = rank ^ distance;
      const std::int64_t mine = rank / distance * distance;
      const std::int64_t theirs = peer / distance * distance;
      std::vector<InstructionId> after;
      if (!blocks.empty()) after.push_back({static_cast<std::int32_t>(blocks.size()) - 1, 1});
      blocks.push_back(
          {peer,
           peer,
           0,
           {{send, output(mine), {}, distance, std::move(after)}, {receive, {}, output(theirs), distance, {}}}});
    }
  }
  return program;
}

Program all_reduce_by_helper(std::int64_t ranks) {
  Program program = empty("helper", Collective::all_reduce, ranks, 2, false);
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    program.ranks[rank].blocks.push_back(
        {ranks, ranks, 0, {{send, input(0), {}, 2, {}}, {receive, {}, output(0), 2, {}}}});
  }
  RankProgram& helper = program.ranks.emplace_back();
  helper.scratch_slots = 2;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const auto block = static_cast<std::int32_t>(rank);
    const auto last = static_cast<std::int32_t>(ranks - 1);
    ThreadBlock with{rank, rank, 0, {}};
    // One after the other they add; when the last has, all send. The nop keeps the last rank's block alike.
    if (rank == 0) {
      with.steps.push_back({receive, {}, scratch(0), 2, {}});
    } else {
      with.steps.push_back({receive_reduce_copy, scratch(0), scratch(0), 2, {{block - 1, 0}}});
    }
    std::vector<InstructionId> all;
    if (block != last) all.push_back({last, 0});
    with.steps.push_back({nop, {}, {}, 1, std::move(all)});
    with.steps.push_back({send, scratch(0), {}, 2, {}});
    helper.blocks.push_back(std::move(with));
  }
  return program;
}

}  // namespace weft::testing
