// Elements become instructions first; what needs the whole GPU (dependencies, hasdep, connections) or the whole file
// (counts, the root) is checked after that.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "collective/rewrite.hpp"
#include "io/msccl_rules.hpp"
#include "io/msccl_xml.hpp"
#include "io/xml_reader.hpp"

namespace weft {
namespace {

constexpr std::int64_t kMaxInt = 0x7fffffff;  // the runtime's own integers

struct StepElement {
  XmlElement element;
  Instruction instruction;  // `after` has at most one entry yet
  bool has_dependent = false;
};

struct BlockElement {
  XmlElement element;
  Block block;
  std::vector<StepElement> steps;
};

struct GpuElement {
  XmlElement element;
  std::array<std::int64_t, 3> chunks{};  // by BufferKind
  std::vector<BlockElement> blocks;      // by id
};

template <std::size_t Count>
std::vector<std::string> strings(const std::array<std::string_view, Count>& names) {
  return {names.begin(), names.end()};
}

class Reader {
 public:
  Reader(std::string_view text, const std::string& file_name) : file_(text, file_name), file_name_(file_name) {}

  Program read() {
    const XmlElement algo = file_.root();
    if (algo.tag() != "algo") algo.complain("is not the root of an MSCCL file, which is <algo>");
    read_header(algo);
    read_gpus(algo);
    program_.spec.root = root(algo);
    validate(program_.spec, algo.what());
    check_counts();
    for (GpuElement& gpu : gpus_) {
      check_dependencies(gpu);
      check_connections(gpu);
      check_bounds(gpu);
      program_.ranks.push_back(rank_program(gpu));
    }
    return without_nops(std::move(program_));
  }

 private:
  void read_header(const XmlElement& algo) {
    program_.name = algo.text("name");
    program_.spec.kind = collective(algo);
    program_.spec.ranks = algo.integer("ngpus", 1, msccl::kMaxRanks);
    program_.spec.pieces = algo.integer("nchunksperloop", 1, msccl::kMaxTotalChunks);
    program_.in_place = algo.integer("inplace", 0, 1) == 1;
    channels_ = algo.integer("nchannels", 0, kMaxInt);
    algo.one_of("proto", strings(msccl::kProtocols));
    if (algo.has("outofplace")) algo.integer("outofplace", 0, 1);
    if (algo.has("nthreads")) algo.integer("nthreads", 0, kMaxInt);
    for (const char* bytes : {"minBytes", "maxBytes"}) {
      if (algo.has(bytes)) algo.integer(bytes, 0, INT64_MAX);
    }
    if (program_.spec.ranks * program_.spec.pieces > msccl::kMaxTotalChunks) {
      algo.reject("nchunksperloop", fmt::format("at most {} for {} gpus", msccl::kMaxTotalChunks / program_.spec.ranks,
                                                program_.spec.ranks));
    }
    if (is_divided(program_.spec.kind) && program_.spec.pieces % program_.spec.ranks != 0) {
      algo.reject("nchunksperloop", fmt::format("a multiple of the {} gpus", program_.spec.ranks));
    }
  }

  static Collective collective(const XmlElement& algo) {
    const std::string name = algo.text("coll");
    if (name == "custom") {
      algo.complain(
          "attribute 'coll': value 'custom' does not say what the program must compute, so that it cannot be "
          "read; name the collective");
    }
    std::vector<std::string> names;
    for (const auto& [known, kind] : msccl::kCollectives) names.emplace_back(known);
    return msccl::kCollectives[algo.one_of("coll", names)].second;
  }

  void read_gpus(const XmlElement& algo) {
    std::vector<std::optional<GpuElement>> by_id(static_cast<std::size_t>(program_.spec.ranks));
    for (XmlElement& element : algo.children("gpu")) {
      const std::int64_t id = element.integer("id", 0, program_.spec.ranks - 1);
      element.rename(fmt::format("gpu {}", id));
      auto& place = by_id[static_cast<std::size_t>(id)];
      if (place) element.complain("is there twice");
      place = read_gpu(std::move(element), id);
    }
    for (std::size_t id = 0; id < by_id.size(); ++id) {
      if (!by_id[id]) algo.complain(fmt::format("gpu {} is missing; ngpus is {}", id, program_.spec.ranks));
      gpus_.push_back(std::move(*by_id[id]));
    }
  }

  GpuElement read_gpu(XmlElement element, std::int64_t id) {
    GpuElement gpu{std::move(element), {}, {}};
    constexpr const char* kChunks[] = {"i_chunks", "o_chunks", "s_chunks"};
    for (std::size_t buffer = 0; buffer < gpu.chunks.size(); ++buffer) {
      gpu.chunks[buffer] = gpu.element.integer(kChunks[buffer], 0, msccl::kMaxTotalChunks);
      total_chunks_ += gpu.chunks[buffer];
    }
    if (total_chunks_ > msccl::kMaxTotalChunks) {
      gpu.element.complain(fmt::format("the file has more than {} chunks by here", msccl::kMaxTotalChunks));
    }
    std::vector<XmlElement> elements = gpu.element.children("tb");
    const auto count = static_cast<std::int64_t>(elements.size());
    if (count > msccl::kMaxBlocks) {
      gpu.element.complain(fmt::format("has {} thread blocks; at most {} are allowed", count, msccl::kMaxBlocks));
    }
    std::vector<std::optional<BlockElement>> by_id(elements.size());
    for (XmlElement& tb : elements) {
      // So many blocks with ids below their number, none twice: contiguous from 0.
      const std::int64_t block = tb.integer("id", 0, count - 1);
      tb.rename(fmt::format("gpu {}, tb {}", id, block));
      auto& place = by_id[static_cast<std::size_t>(block)];
      if (place) tb.complain("is there twice");
      place = read_block(std::move(tb), id);
    }
    for (auto& block : by_id) gpu.blocks.push_back(std::move(*block));
    return gpu;
  }

  BlockElement read_block(XmlElement element, std::int64_t gpu) const {
    BlockElement result{std::move(element), {}, {}};
    const XmlElement& tb = result.element;
    const auto peer = [&](const char* attribute) {
      const std::int64_t rank = tb.integer(attribute, -1, program_.spec.ranks - 1);
      if (rank == gpu) tb.reject(attribute, "another gpu");
      return rank;
    };
    result.block.send_to = peer("send");
    result.block.receive_from = peer("recv");
    if (channels_ == 0) tb.complain("needs a channel, but nchannels is 0");
    result.block.channel = tb.integer("chan", 0, channels_ - 1);
    std::vector<XmlElement> steps = tb.children("step");
    if (static_cast<std::int64_t>(steps.size()) > msccl::kMaxSteps) {
      tb.complain(fmt::format("has {} steps; at most {} are allowed", steps.size(), msccl::kMaxSteps));
    }
    for (std::size_t i = 0; i < steps.size(); ++i) {
      steps[i].rename(fmt::format("{}, step {}", tb.what(), i));
      result.steps.push_back(read_step(std::move(steps[i]), static_cast<std::int64_t>(i), result.block));
    }
    return result;
  }

  static StepElement read_step(XmlElement element, std::int64_t index, const Block& block) {
    StepElement result{std::move(element), {}, false};
    const XmlElement& step = result.element;
    Instruction& instruction = result.instruction;
    step.integer("s", index, index);
    instruction.kind = static_cast<StepKind>(step.one_of("type", strings(msccl::kStepTypes)));
    const bool is_nop = instruction.kind == StepKind::nop;
    if (sends(instruction.kind) && block.send_to < 0) step.complain("sends, but its tb has send=\"-1\"");
    if (receives(instruction.kind) && block.receive_from < 0) step.complain("receives, but its tb has recv=\"-1\"");
    // Offsets that the step does not use are -1, or those at the other end.
    const SlotRef src = slot(step, "srcbuf", "srcoff"), dst = slot(step, "dstbuf", "dstoff");
    if (reads_src(instruction.kind)) instruction.src = src;
    if (writes_dst(instruction.kind)) instruction.dst = dst;
    instruction.count = step.integer("cnt", is_nop ? 0 : 1, msccl::kMaxCount);
    if (is_nop) instruction.count = 0;
    result.has_dependent = step.integer("hasdep", 0, 1) == 1;
    const auto other_block = static_cast<std::int32_t>(step.integer("depid", -1, msccl::kMaxBlocks - 1));
    const auto other_step = static_cast<std::int32_t>(step.integer("deps", -1, msccl::kMaxSteps - 1));
    if ((other_block < 0) != (other_step < 0)) {
      step.complain(fmt::format("depid {} and deps {}: both are -1 or none is", other_block, other_step));
    }
    if (other_block >= 0) instruction.after.push_back({other_block, other_step});
    return result;
  }

  static SlotRef slot(const XmlElement& step, const char* buffer, const char* offset) {
    const auto kind = static_cast<BufferKind>(step.one_of(buffer, strings(msccl::kBuffers)));
    return {kind, step.integer(offset, -1, msccl::kMaxTotalChunks)};
  }

  // Files do not name the root of a broadcast or reduce. It is the one GPU with an input (an output); where every GPU
  // has one, the only one that receives (sends) nothing.
  std::int64_t root(const XmlElement& algo) const {
    if (!has_root(program_.spec.kind) || program_.spec.ranks == 1) return 0;
    const bool broadcast = program_.spec.kind == Collective::broadcast;
    const auto only = [&](const auto& matches) -> std::optional<std::int64_t> {
      const auto found = std::find_if(gpus_.begin(), gpus_.end(), matches);
      if (std::count_if(gpus_.begin(), gpus_.end(), matches) != 1) return std::nullopt;
      return found - gpus_.begin();
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
                    name_of(program_.spec.kind), broadcast ? "i_chunks" : "o_chunks", broadcast ? "receive" : "send"));
  }

  // i_chunks and o_chunks are what the collective makes of nchunksperloop. In place either may be 0; where only the
  // root has an input or an output, a file may give the others one that they do not use.
  void check_counts() const {
    const CollectiveSpec& spec = program_.spec;
    for (std::size_t r = 0; r < gpus_.size(); ++r) {
      const auto rank = static_cast<std::int64_t>(r);
      const auto check = [&](const char* attribute, std::int64_t found, std::int64_t wanted) {
        if (found == wanted || (program_.in_place && found == 0) || (has_root(spec.kind) && found == spec.pieces))
          return;
        gpus_[r].element.reject(attribute, fmt::format("{}, as nchunksperloop {} of this {} makes it", wanted,
                                                       spec.pieces, name_of(spec.kind)));
      };
      check("i_chunks", gpus_[r].chunks[0], input_slots(spec, rank));
      check("o_chunks", gpus_[r].chunks[1], output_slots(spec, rank));
    }
  }

  static void check_dependencies(const GpuElement& gpu) {
    std::set<StepId> waited_for;
    for (std::size_t b = 0; b < gpu.blocks.size(); ++b) {
      bool in_chain = false;
      for (const StepElement& step : gpu.blocks[b].steps) {
        const bool is_nop = step.instruction.kind == StepKind::nop;
        // The runtime counts nops by the dependencies of the step that follows them.
        if (step.instruction.after.empty() && (is_nop || in_chain)) {
          step.element.complain(is_nop ? "a nop waits for a step, but depid is -1"
                                       : "follows a nop, so that it must carry the last dependency, but depid is -1");
        }
        in_chain = is_nop;
        for (const StepId& other : step.instruction.after) {
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

  static void check_dependency(const GpuElement& gpu, const StepElement& step, std::int32_t own, StepId other) {
    const auto blocks = static_cast<std::int32_t>(gpu.blocks.size());
    if (other.block >= blocks) step.element.reject("depid", fmt::format("in -1..{}", blocks - 1));
    if (other.block == own) step.element.reject("depid", "another tb (the steps of a tb follow each other anyway)");
    const auto& steps = gpu.blocks[static_cast<std::size_t>(other.block)].steps;
    const auto count = static_cast<std::int32_t>(steps.size());
    if (other.step >= count) {
      step.element.reject("deps", fmt::format("a step of tb {}, which has {}", other.block, count));
    }
    if (steps[static_cast<std::size_t>(other.step)].instruction.kind == StepKind::nop) {
      step.element.complain(
          fmt::format("waits for tb {}, step {}, a nop, which tells nobody when it ends", other.block, other.step));
    }
  }

  // A connection belongs to one block at each end.
  static void check_connections(const GpuElement& gpu) {
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

  void check_bounds(const GpuElement& gpu) const {
    const auto rank = &gpu - gpus_.data();
    const auto check = [&](const StepElement& step, SlotRef slot, const char* offset) {
      std::int64_t chunks = gpu.chunks[static_cast<std::size_t>(slot.buffer)];
      if (!program_.in_place && slot.buffer == BufferKind::input) {
        chunks = std::min(chunks, input_slots(program_.spec, rank));
      }
      if (!program_.in_place && slot.buffer == BufferKind::output) {
        chunks = std::min(chunks, output_slots(program_.spec, rank));
      }
      if (slot.slot >= 0 && slot.slot + step.instruction.count <= chunks) return;
      step.element.complain(fmt::format("{} {} and cnt {}: buffer {} has {} chunks", offset, slot.slot,
                                        step.instruction.count, msccl::kBuffers[static_cast<std::size_t>(slot.buffer)],
                                        chunks));
    };
    for (const BlockElement& block : gpu.blocks) {
      for (const StepElement& step : block.steps) {
        if (reads_src(step.instruction.kind)) check(step, step.instruction.src, "srcoff");
        if (writes_dst(step.instruction.kind)) check(step, step.instruction.dst, "dstoff");
      }
    }
  }

  static RankProgram rank_program(GpuElement& gpu) {
    RankProgram rank;
    rank.scratch_slots = gpu.chunks[2];
    for (BlockElement& element : gpu.blocks) {
      for (StepElement& step : element.steps) element.block.steps.push_back(std::move(step.instruction));
      rank.blocks.push_back(std::move(element.block));
    }
    return rank;
  }

  XmlFile file_;
  std::string file_name_;
  Program program_;
  std::vector<GpuElement> gpus_;
  std::int64_t channels_ = 0;
  std::int64_t total_chunks_ = 0;
};

}  // namespace

bool can_read_msccl_xml() {
  return true;
}

Program read_msccl_xml(std::string_view text, const std::string& file_name) {
  return Reader(text, file_name).read();
}

}  // namespace weft
