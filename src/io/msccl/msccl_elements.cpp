#include "io/msccl/msccl_elements.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "io/msccl/msccl_rules.hpp"

namespace weft::msccl {
namespace {

// i_chunks and o_chunks follow from nchunksperloop and the collective. In place either may be 0; where only the root
// has an input or output, a file may declare unused ones for the others.
void check_counts(const CollectiveSpec& spec, bool in_place, std::int64_t rank, const GpuElement& gpu) {
  const auto check = [&](const char* attribute, std::int64_t found, std::int64_t wanted) {
    if (found == wanted || (in_place && found == 0) || (has_root(spec.kind) && found == spec.pieces)) return;
    gpu.element.reject(attribute, fmt::format("{}, as nchunksperloop {} of this {} makes it", wanted, spec.pieces,
                                              name_of(spec.kind)));
  };
  check("i_chunks", gpu.chunks[0], input_slots(spec, rank));
  check("o_chunks", gpu.chunks[1], output_slots(spec, rank));
}

void check_dependency(const GpuElement& gpu, const StepElement& step, std::int32_t own, InstructionId other) {
  const auto blocks = static_cast<std::int32_t>(gpu.blocks.size());
  if (other.block >= blocks) step.element.reject("depid", fmt::format("in -1..{}", blocks - 1));
  if (other.block == own) step.element.reject("depid", "another tb (the steps of a tb follow each other anyway)");
  const auto& steps = gpu.blocks[other.block].steps;
  const auto count = static_cast<std::int32_t>(steps.size());
  if (other.step >= count) {
    step.element.reject("deps", fmt::format("a step of tb {}, which has {}", other.block, count));
  }
  if (steps[other.step].instruction.kind == InstructionKind::nop) {
    step.element.complain(
        fmt::format("waits for tb {}, step {}, a nop, which tells nobody when it ends", other.block, other.step));
  }
}

void check_dependencies(const GpuElement& gpu) {
  std::set<InstructionId> waited_for;
  for (std::size_t b = 0; b < gpu.blocks.size(); ++b) {
    for (const StepElement& step : gpu.blocks[b].steps) {
      for (const InstructionId& other : step.instruction.after) {
        check_dependency(gpu, step, static_cast<std::int32_t>(b), other);
        waited_for.insert(other);
      }
    }
  }
  for (std::size_t b = 0; b < gpu.blocks.size(); ++b) {
    for (std::size_t s = 0; s < gpu.blocks[b].steps.size(); ++s) {
      const StepElement& step = gpu.blocks[b].steps[s];
      const bool waited = waited_for.contains({static_cast<std::int32_t>(b), static_cast<std::int32_t>(s)});
      if (waited == step.has_dependent) continue;
      step.element.complain(waited ? "hasdep is 0, but another step waits for this one: it would wait for ever"
                                   : "hasdep is 1, but no step waits for this one");
    }
  }
}

// A connection belongs to one block at each end.
void check_connections(const GpuElement& gpu) {
  std::map<std::tuple<bool, std::int64_t, std::int64_t>, std::size_t> owner;
  for (std::size_t b = 0; b < gpu.blocks.size(); ++b) {
    const auto claim = [&](bool outgoing, std::int64_t peer) {
      if (peer < 0) return;
      const auto [first, fresh] = owner.try_emplace({outgoing, peer, gpu.blocks[b].block.channel}, b);
      if (fresh) return;
      gpu.blocks[b].element.complain(fmt::format("{} gpu {} on channel {}, as tb {} does; a connection has one tb",
                                                 outgoing ? "sends to" : "receives from", peer,
                                                 gpu.blocks[b].block.channel, first->second));
    };
    claim(true, gpu.blocks[b].block.send_to);
    claim(false, gpu.blocks[b].block.receive_from);
  }
}

void check_bounds(const CollectiveSpec& spec, bool in_place, std::int64_t rank, const GpuElement& gpu) {
  std::array<std::int64_t, 3> chunks = gpu.chunks;
  if (!in_place) {
    chunks[0] = std::min(chunks[0], input_slots(spec, rank));
    chunks[1] = std::min(chunks[1], output_slots(spec, rank));
  }
  const auto check = [&](const StepElement& step, SlotRef slot, const char* offset) {
    const auto buffer = static_cast<std::size_t>(slot.buffer);
    if (slot.slot >= 0 && slot.slot + step.instruction.count <= chunks[buffer]) return;
    step.element.complain(fmt::format("{} {} and cnt {}: buffer {} has {} chunks", offset, slot.slot,
                                      step.instruction.count, kBuffers[buffer], chunks[buffer]));
  };
  for (const BlockElement& block : gpu.blocks) {
    for (const StepElement& step : block.steps) {
      if (reads_src(step.instruction.kind)) check(step, step.instruction.src, "srcoff");
      if (writes_dst(step.instruction.kind)) check(step, step.instruction.dst, "dstoff");
    }
  }
}

}  // namespace

std::int64_t root_of(const CollectiveSpec& spec, const XmlElement& algo, const std::vector<GpuElement>& gpus) {
  if (!has_root(spec.kind) || spec.ranks == 1) return 0;
  const bool broadcast = spec.kind == Collective::broadcast;
  const auto only = [&](const auto& matches) -> std::optional<std::int64_t> {
    const auto found = std::find_if(gpus.begin(), gpus.end(), matches);
    if (std::count_if(gpus.begin(), gpus.end(), matches) != 1) return std::nullopt;
    return found - gpus.begin();
  };
  const auto by_count = only([&](const GpuElement& gpu) { return gpu.chunks[broadcast ? 0 : 1] > 0; });
  if (by_count) return *by_count;
  const auto by_steps = only([&](const GpuElement& gpu) {
    return std::none_of(gpu.blocks.begin(), gpu.blocks.end(), [&](const BlockElement& block) {
      return std::any_of(block.steps.begin(), block.steps.end(), [&](const StepElement& step) {
        return broadcast ? receives(step.instruction.kind) : sends(step.instruction.kind);
      });
    });
  });
  if (by_steps) return *by_steps;
  algo.complain(
      fmt::format("which gpu is the root of the {} cannot be told: exactly one must have {} > 0, or {} nothing",
                  name_of(spec.kind), broadcast ? "i_chunks" : "o_chunks", broadcast ? "receive" : "send"));
}

void check_gpu(const CollectiveSpec& spec, bool in_place, std::int64_t rank, const GpuElement& gpu) {
  check_counts(spec, in_place, rank, gpu);
  check_dependencies(gpu);
  check_connections(gpu);
  check_bounds(spec, in_place, rank, gpu);
}

}  // namespace weft::msccl
