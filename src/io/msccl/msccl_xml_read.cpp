// Elements become instructions first; what needs the whole GPU or the whole file is checked after that
// (io/msccl/msccl_elements.hpp).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "collective/rewrite.hpp"
#include "io/msccl/msccl_elements.hpp"
#include "io/msccl/msccl_rules.hpp"
#include "io/msccl/msccl_xml.hpp"
#include "io/msccl/xml_reader.hpp"

namespace weft {
namespace {

using msccl::BlockElement;
using msccl::GpuElement;
using msccl::StepElement;

constexpr std::int64_t kMaxInt = 0x7fffffff;  // the runtime's own integers

template <std::size_t Count>
std::vector<std::string> strings(const std::array<std::string_view, Count>& names) {
  return {names.begin(), names.end()};
}

class Reader {
 public:
  Reader(std::string_view text, const std::string& file_name) : file_(text, file_name) {}

  Program read() {
    const XmlElement algo = file_.root();
    if (algo.tag() != "algo") algo.complain("is not the root of an MSCCL file, which is <algo>");
    read_header(algo);
    read_gpus(algo);
    program_.spec.root = msccl::root_of(program_.spec, algo, gpus_);
    validate(program_.spec, algo.what());
    for (std::size_t rank = 0; rank < gpus_.size(); ++rank) {
      msccl::check_gpu(program_.spec, program_.in_place, static_cast<std::int64_t>(rank), gpus_[rank]);
      program_.ranks.push_back(rank_program(gpus_[rank]));
    }
    return without_nops(without_idle_copies(std::move(program_)));
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
    std::vector<std::optional<GpuElement>> by_id(program_.spec.ranks);
    for (XmlElement& element : algo.children("gpu")) {
      const std::int64_t id = element.integer("id", 0, program_.spec.ranks - 1);
      element.rename(fmt::format("gpu {}", id));
      auto& place = by_id[id];
      if (place) element.complain("is there twice");
      place = read_gpu(std::move(element), id);
    }
    for (std::size_t id = 0; id < by_id.size(); ++id) {
      if (!by_id[id]) algo.complain(fmt::format("gpu {} is missing; ngpus is {}", id, program_.spec.ranks));
      gpus_.push_back(std::move(*by_id[id]));
    }
  }

  GpuElement read_gpu(XmlElement element, std::int64_t id) {
    GpuElement gpu{std::move(element), {}, {}, {}};
    constexpr const char* kChunks[] = {"i_chunks", "o_chunks", "s_chunks"};
    for (std::size_t buffer = 0; buffer < gpu.chunks.size(); ++buffer) {
      gpu.chunks[buffer] = gpu.element.integer(kChunks[buffer], 0, msccl::kMaxTotalChunks);
      total_chunks_ += gpu.chunks[buffer];
    }
    if (total_chunks_ > msccl::kMaxTotalChunks) {
      gpu.element.complain(fmt::format("the file has more than {} chunks by here", msccl::kMaxTotalChunks));
    }
    std::vector<XmlElement> elements;
    for (XmlElement& child : gpu.element.children(std::array<std::string_view, 2>{"tb", "copy"})) {
      if (child.tag() == "copy") {
        gpu.first_copies.push_back(read_first_copy(child, gpu.chunks));
      } else {
        elements.push_back(std::move(child));
      }
    }
    const auto count = static_cast<std::int64_t>(elements.size());
    if (count > msccl::kMaxBlocks) {
      gpu.element.complain(fmt::format("has {} thread blocks; at most {} are allowed", count, msccl::kMaxBlocks));
    }
    std::vector<std::optional<BlockElement>> by_id(elements.size());
    for (XmlElement& tb : elements) {
      // So many blocks with ids below their number, none twice: contiguous from 0.
      const std::int64_t block = tb.integer("id", 0, count - 1);
      tb.rename(fmt::format("gpu {}, tb {}", id, block));
      auto& place = by_id[block];
      if (place) tb.complain("is there twice");
      place = read_block(std::move(tb), id);
    }
    for (auto& block : by_id) gpu.blocks.push_back(std::move(*block));
    return gpu;
  }

  static Instruction read_first_copy(const XmlElement& copy, const std::array<std::int64_t, 3>& chunks) {
    return {InstructionKind::copy,
            {BufferKind::input, copy.integer("i_off", 0, chunks[0] - 1)},
            {BufferKind::output, copy.integer("o_off", 0, chunks[1] - 1)},
            1,
            {}};
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
    const bool talks = result.block.send_to >= 0 || result.block.receive_from >= 0;
    result.block.channel = std::max<std::int64_t>(tb.integer("chan", talks ? 0 : -1, channels_ - 1), 0);
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

  static StepElement read_step(XmlElement element, std::int64_t index, const ThreadBlock& block) {
    StepElement result{std::move(element), {}, false};
    const XmlElement& step = result.element;
    Instruction& instruction = result.instruction;
    step.integer("s", index, index);
    instruction.kind = static_cast<InstructionKind>(step.one_of("type", strings(msccl::kStepTypes)));
    const bool is_nop = instruction.kind == InstructionKind::nop;
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

  // A block of its own does the copies, and all others wait for it.
  static void copy_first(RankProgram& rank, std::vector<Instruction> copies) {
    if (copies.empty()) return;
    const InstructionId last{static_cast<std::int32_t>(rank.blocks.size()),
                             static_cast<std::int32_t>(copies.size()) - 1};
    for (ThreadBlock& block : rank.blocks) {
      if (!block.steps.empty()) block.steps.front().after.push_back(last);
    }
    rank.blocks.push_back({-1, -1, 0, std::move(copies)});
  }

  static RankProgram rank_program(GpuElement& gpu) {
    RankProgram rank;
    rank.scratch_slots = gpu.chunks[2];
    for (BlockElement& element : gpu.blocks) {
      for (StepElement& step : element.steps) element.block.steps.push_back(std::move(step.instruction));
      rank.blocks.push_back(std::move(element.block));
    }
    copy_first(rank, std::move(gpu.first_copies));
    return rank;
  }

  XmlFile file_;
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
