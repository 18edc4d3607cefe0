// Needs no XML library: names are checked so that nothing has to be escaped.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "collective/rewrite.hpp"
#include "collective/verify/symbolic_run.hpp"
#include "io/msccl/msccl_rules.hpp"
#include "io/msccl/msccl_xml.hpp"

namespace weft {
namespace {

std::string_view collective_name(Collective kind, bool for_rccl) {
  if (for_rccl && kind == Collective::reduce_scatter) return "reducescatter";
  for (const auto& [name, known] : msccl::kCollectives) {
    if (known == kind) return name;
  }
  fail("MSCCL XML: there is no {}; it has all_reduce, all_gather, reduce, broadcast, all_to_all, reduce_scatter",
       name_of(kind));
}

void check_text(std::string_view what, const std::string& text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return c >= ' ' && c <= '~' && std::string_view("<>&\"'").find(c) == std::string_view::npos;
  });
  if (text.empty() || text.size() > msccl::kMaxNameLength || !plain) {
    fail("MSCCL XML: {} '{}': is not 1 to {} plain characters without < > & and quotes", what,
         text.substr(0, msccl::kMaxNameLength), msccl::kMaxNameLength);
  }
}

void check_options(const MscclOptions& options) {
  if (std::find(msccl::kProtocols.begin(), msccl::kProtocols.end(), options.proto) == msccl::kProtocols.end()) {
    fail("MSCCL XML: proto '{}': is not one of {}", options.proto, fmt::join(msccl::kProtocols, ", "));
  }
  if (options.min_bytes < 0 || options.max_bytes < options.min_bytes) {
    fail("MSCCL XML: minBytes {} and maxBytes {}: are not 0 <= minBytes <= maxBytes", options.min_bytes,
         options.max_bytes);
  }
  if (options.threads < 0) fail("MSCCL XML: nthreads {}: is negative", options.threads);
}

// Splitting large counts puts more messages under way, which the two message slots of a connection must still hold.
Program within_count_limit(Program program) {
  const auto is_large = [](const Instruction& instruction) { return instruction.count > msccl::kMaxCount; };
  bool any = false;
  for (const RankProgram& rank : program.ranks) {
    for (const ThreadBlock& block : rank.blocks)
      any = any || std::any_of(block.steps.begin(), block.steps.end(), is_large);
  }
  if (!any) return program;
  program = with_counts_up_to(std::move(program), msccl::kMaxCount);
  if (const auto violation = run_symbolically(program).violation) {
    fail("MSCCL XML: cut into steps of at most {} chunks, the program does not work: {}; use fewer parts",
         msccl::kMaxCount, *violation);
  }
  return program;
}

void check_blocks(const RankProgram& code, std::size_t rank) {
  const auto blocks = static_cast<std::int64_t>(code.blocks.size());
  if (blocks > msccl::kMaxBlocks) {
    fail("MSCCL XML: rank {} has {} blocks; MSCCL allows {}: use fewer channels or an algorithm with fewer peers", rank,
         blocks, msccl::kMaxBlocks);
  }
  std::map<std::pair<bool, std::int64_t>, std::int64_t> peers;  // of a channel
  for (std::size_t b = 0; b < code.blocks.size(); ++b) {
    const ThreadBlock& block = code.blocks[b];
    if (block.channel >= msccl::kMaxChannels) {
      fail("MSCCL XML: rank {}, block {}: channel {} is not in 0..{}: use fewer channels", rank, b, block.channel,
           msccl::kMaxChannels - 1);
    }
    const bool full = (block.send_to >= 0 && ++peers[{true, block.channel}] > msccl::kMaxPeersPerChannel) ||
                      (block.receive_from >= 0 && ++peers[{false, block.channel}] > msccl::kMaxPeersPerChannel);
    if (full) {
      fail("MSCCL XML: rank {} has more than {} peers on channel {}: use fewer ranks or an algorithm with fewer peers",
           rank, msccl::kMaxPeersPerChannel, block.channel);
    }
    const auto steps = static_cast<std::int64_t>(block.steps.size());
    if (steps > msccl::kMaxSteps) {
      fail(
          "MSCCL XML: rank {}, block {} has {} steps; MSCCL allows {}: use fewer parts, or an algorithm with fewer "
          "messages",
          rank, b, steps, msccl::kMaxSteps);
    }
  }
}

bool named_as_output(Collective kind) {
  return kind == Collective::all_gather || kind == Collective::broadcast;
}

class Writer {
 public:
  Writer(const Program& program, const MscclOptions& options) : program_(program), options_(options) {}

  std::string write() {
    write_algo();
    for (std::size_t rank = 0; rank < program_.ranks.size(); ++rank) write_gpu(rank);
    text_ += "</algo>\n";
    return std::move(text_);
  }

 private:
  template <class... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  void write_algo() {
    std::int64_t channels = 1;
    for (const RankProgram& rank : program_.ranks) {
      for (const ThreadBlock& block : rank.blocks) channels = std::max(channels, block.channel + 1);
    }
    const std::string& name = options_.name.empty() ? program_.name : options_.name;
    check_text("name", name);
    put("<algo name=\"{}\" proto=\"{}\" nchannels=\"{}\" nchunksperloop=\"{}\" ngpus=\"{}\" coll=\"{}\" inplace=\"{}\" "
        "outofplace=\"{}\" minBytes=\"{}\" maxBytes=\"{}\"",
        name, options_.proto, channels, program_.spec.pieces, program_.spec.ranks,
        collective_name(program_.spec.kind, options_.for_rccl), program_.in_place ? 1 : 0, program_.in_place ? 0 : 1,
        options_.min_bytes, options_.max_bytes);
    if (options_.threads > 0) put(" nthreads=\"{}\"", options_.threads);
    put(">\n");
  }

  void write_gpu(std::size_t rank) {
    const RankProgram& code = program_.ranks[rank];
    check_blocks(code, rank);
    const auto [input, output] = chunks(static_cast<std::int64_t>(rank));
    put("  <gpu id=\"{}\" i_chunks=\"{}\" o_chunks=\"{}\" s_chunks=\"{}\">\n", rank, input, output, code.scratch_slots);
    std::set<InstructionId> waited_for;
    for (const ThreadBlock& block : code.blocks) {
      for (const Instruction& step : block.steps) waited_for.insert(step.after.begin(), step.after.end());
    }
    for (std::size_t b = 0; b < code.blocks.size(); ++b) {
      const ThreadBlock& block = code.blocks[b];
      put("    <tb id=\"{}\" send=\"{}\" recv=\"{}\" chan=\"{}\">\n", b, block.send_to, block.receive_from,
          block.channel);
      for (std::size_t s = 0; s < block.steps.size(); ++s) {
        const InstructionId id{static_cast<std::int32_t>(b), static_cast<std::int32_t>(s)};
        write_step(static_cast<std::int64_t>(rank), id, block.steps[s], waited_for.contains(id));
      }
      put("    </tb>\n");
    }
    put("  </gpu>\n");
  }

  void write_step(std::int64_t rank, InstructionId id, const Instruction& step, bool waited_for) {
    const bool is_nop = step.kind == InstructionKind::nop;
    if (is_nop && waited_for) {
      fail("MSCCL XML: {}: other blocks wait for it, which MSCCL does not know; let them wait for what it waits for",
           where(program_, rank, id));
    }
    const InstructionId other = step.after.empty() ? InstructionId{-1, -1} : step.after.front();
    // Unused offsets repeat the used ones, because the runtime checks that offsets lie in this GPU's buffers.
    SlotRef src = step.src, dst = step.dst;
    if (!reads_src(step.kind)) src = dst;
    if (!writes_dst(step.kind)) dst = src;
    src = is_nop ? SlotRef{BufferKind::input, -1} : named(rank, src);
    dst = is_nop ? SlotRef{BufferKind::output, -1} : named(rank, dst);
    put("      <step s=\"{}\" type=\"{}\" srcbuf=\"{}\" srcoff=\"{}\" dstbuf=\"{}\" dstoff=\"{}\" cnt=\"{}\" "
        "depid=\"{}\" "
        "deps=\"{}\" hasdep=\"{}\"/>\n",
        id.step, msccl::kStepTypes[static_cast<std::size_t>(step.kind)],
        msccl::kBuffers[static_cast<std::size_t>(src.buffer)], src.slot,
        msccl::kBuffers[static_cast<std::size_t>(dst.buffer)], dst.slot, is_nop ? 0 : step.count, other.block,
        other.step, waited_for ? 1 : 0);
  }

  // In place there is one buffer, which has one name. The root of a broadcast or reduce also declares the other one:
  // nothing else in the file says which rank it is.
  std::pair<std::int64_t, std::int64_t> chunks(std::int64_t rank) const {
    const std::int64_t input = input_slots(program_.spec, rank);
    const std::int64_t output = output_slots(program_.spec, rank);
    if (!program_.in_place) return {input, output};
    const bool is_root = has_root(program_.spec.kind) && rank == program_.spec.root;
    const std::int64_t whole = std::max(input, output);
    if (named_as_output(program_.spec.kind)) return {is_root ? whole : 0, whole};
    return {whole, is_root ? whole : 0};
  }

  SlotRef named(std::int64_t rank, SlotRef slot) const {
    SlotRef real = located(program_, rank, slot);
    if (program_.in_place && real.buffer == BufferKind::output && !named_as_output(program_.spec.kind)) {
      real.buffer = BufferKind::input;
    }
    return real;
  }

  const Program& program_;
  const MscclOptions& options_;
  std::string text_;
};

}  // namespace

std::string write_msccl_xml(const Program& program, const MscclOptions& options) {
  check_options(options);
  const auto ranks = static_cast<std::int64_t>(program.ranks.size());
  if (ranks != program.spec.ranks) {
    fail(
        "MSCCL XML: the program has {} ranks beside the {} members of the collective; MSCCL has no such helpers: use "
        "an algorithm without servers",
        ranks - program.spec.ranks, program.spec.ranks);
  }
  return Writer(with_one_dependency_each(within_count_limit(without_nops(program))), options).write();
}

}  // namespace weft
