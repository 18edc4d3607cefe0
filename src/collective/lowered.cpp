#include "collective/lowered.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "base/error.hpp"

namespace weft {
namespace {

struct Place {
  BufferKind buffer = BufferKind::input;
  std::int64_t begin = 0;
  std::int64_t capacity = 0;
  std::int32_t writer = -1;           // the last step that wrote it
  std::vector<std::int32_t> readers;  // since then
};

void sort_unique(std::vector<std::int32_t>& steps) {
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
}

class RankLowering {
 public:
  RankLowering(const Program& program, std::int64_t rank, const PieceSizes& sizes, Bytes element)
      : program_(program), rank_(rank), sizes_(sizes), element_(element.value) {
    lay_out(BufferKind::input, out_.input_bytes);
    lay_out(BufferKind::output, out_.output_bytes);
    scratch_.resize(slot_count(program, rank, BufferKind::scratch));
  }

  // Scratch slots are as large as the largest piece that passes through them.
  void note_scratch(const StepTrace& trace) {
    const Instruction& instruction = at(trace.step);
    if (!writes_dst(instruction.kind) || instruction.dst.buffer != BufferKind::scratch) return;
    for (std::size_t i = 0; i < trace.moved.size(); ++i) {
      Place& place = scratch_[static_cast<std::size_t>(instruction.dst.slot) + i];
      place.capacity = std::max(place.capacity, bytes_of(trace.moved[i]));
    }
  }

  void place_scratch() {
    for (Place& place : scratch_) {
      place.buffer = BufferKind::scratch;
      place.begin = out_.scratch_bytes;
      out_.scratch_bytes += place.capacity;
    }
  }

  void add(const StepTrace& trace) {
    const Instruction& instruction = at(trace.step);
    // What a nop waits for, the next instruction of its block and every instruction that names the nop wait for.
    std::vector<std::int32_t>& named = named_[trace.step.block];
    for (const InstructionId& other : instruction.after) {
      const auto& steps = lowered_[other];
      named.insert(named.end(), steps.begin(), steps.end());
    }
    if (instruction.kind == InstructionKind::nop) {
      lowered_[trace.step] = named;
      if (trace.step.step > 0) {
        const auto& before = lowered_[{trace.step.block, trace.step.step - 1}];
        lowered_[trace.step].insert(lowered_[trace.step].end(), before.begin(), before.end());
      }
      return;
    }
    const ThreadBlock& block = program_.ranks[rank_].blocks[trace.step.block];
    const std::vector<Place*> src =
        reads_src(instruction.kind) ? places(instruction.src, trace.moved.size()) : std::vector<Place*>{};
    std::vector<Place*> dst =
        writes_dst(instruction.kind) ? places(instruction.dst, trace.moved.size()) : std::vector<Place*>{};
    if (!receives(instruction.kind)) {
      const bool sending = instruction.kind == InstructionKind::send;
      append(trace, instruction.kind, sending ? block.send_to : -1, block.channel, src, dst);
      return;
    }
    if (instruction.kind == InstructionKind::receive_reduce_send) dst = hidden_places(trace);
    append(trace, reduces(instruction.kind) ? InstructionKind::receive_reduce_copy : InstructionKind::receive,
           block.receive_from, block.channel, src, dst);
    if (sends(instruction.kind)) append(trace, InstructionKind::send, block.send_to, block.channel, dst, {});
  }

  LoweredRank finish() && { return std::move(out_); }

 private:
  const Instruction& at(InstructionId id) const { return program_.ranks[rank_].blocks[id.block].steps[id.step]; }

  std::int64_t bytes_of(const Content& content) const { return sizes_[content.piece] * element_; }

  // Slots follow the layout of the user's buffers: by input pieces, by output pieces, or by both in place.
  void lay_out(BufferKind buffer, std::int64_t& total) {
    const CollectiveSpec& spec = program_.spec;
    std::vector<std::int64_t> capacities(slot_count(program_, rank_, buffer), -1);
    const auto hold = [&](std::int64_t slot, const Content& content) {
      std::int64_t& capacity = capacities[slot];
      if (capacity >= 0 && capacity != bytes_of(content)) {
        fail("{} in place: slot {} of rank {} holds {} bytes before and {} after; sizes must be the same both ways",
             name_of(spec.kind), slot, rank_, capacity, bytes_of(content));
      }
      capacity = bytes_of(content);
    };
    if (buffer == BufferKind::input || program_.in_place) {
      for (std::int64_t i = 0; i < input_slots(spec, rank_) && !capacities.empty(); ++i) {
        hold(program_.in_place ? in_place_slot_of_input(spec, rank_, i) : i, initial_content(spec, rank_, i));
      }
    }
    if (buffer == BufferKind::output) {
      for (std::int64_t i = 0; i < output_slots(spec, rank_); ++i) {
        hold(program_.in_place ? in_place_slot_of_output(spec, rank_, i) : i, required_content(spec, rank_, i));
      }
    }
    auto& row = buffer == BufferKind::input ? input_ : output_;
    for (const std::int64_t capacity : capacities) {
      row.push_back({buffer, total, capacity, -1, {}});
      total += capacity;
    }
  }

  std::vector<Place*> places(SlotRef first, std::size_t count) {
    std::vector<Place*> result;
    for (std::size_t i = 0; i < count; ++i) {
      const SlotRef slot = located(program_, rank_, {first.buffer, first.slot + static_cast<std::int64_t>(i)});
      auto& row = slot.buffer == BufferKind::input ? input_ : slot.buffer == BufferKind::output ? output_ : scratch_;
      result.push_back(&row[slot.slot]);
    }
    return result;
  }

  // Scratch beyond the program's own holds the results of receive_reduce_send, which the program stores nowhere.
  std::vector<Place*> hidden_places(const StepTrace& trace) {
    std::vector<Place*> result;
    for (const Content& content : trace.moved) {
      hidden_.push_back(
          std::make_unique<Place>(Place{BufferKind::scratch, out_.scratch_bytes, bytes_of(content), -1, {}}));
      out_.scratch_bytes += bytes_of(content);
      result.push_back(hidden_.back().get());
    }
    return result;
  }

  std::vector<ByteRange> ranges(const StepTrace& trace, const std::vector<Place*>& row) const {
    std::vector<ByteRange> result;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const ByteRange range{row[i]->buffer, row[i]->begin, bytes_of(trace.moved[i])};
      if (range.bytes > row[i]->capacity) {
        fail("{}: piece {} has {} bytes, the {} slot has {}", where(program_, rank_, trace.step), trace.moved[i].piece,
             range.bytes, name_of(range.buffer), row[i]->capacity);
      }
      if (range.bytes == 0) continue;
      ByteRange* last = result.empty() ? nullptr : &result.back();
      if (last != nullptr && last->buffer == range.buffer && last->begin + last->bytes == range.begin) {
        last->bytes += range.bytes;
      } else {
        result.push_back(range);
      }
    }
    return result;
  }

  bool completes(const StepTrace& trace) const {
    const auto complete = [&](const Content& content) { return content.from.size() == program_.spec.ranks; };
    const auto count = std::count_if(trace.moved.begin(), trace.moved.end(), complete);
    if (count != 0 && count != std::ssize(trace.moved)) {
      fail("{}: completes some of its pieces and not others; cut it in two", where(program_, rank_, trace.step));
    }
    return count != 0;
  }

  void append(const StepTrace& trace, InstructionKind kind, std::int64_t peer, std::int64_t channel,
              const std::vector<Place*>& src, const std::vector<Place*>& dst) {
    LoweredStep step{trace.step, kind, peer, channel, 0, ranges(trace, src), ranges(trace, dst), false, {}, {}};
    for (const Content& content : trace.moved) step.bytes += bytes_of(content);
    step.completes = reduces(kind) && completes(trace);
    const auto id = static_cast<std::int32_t>(out_.steps.size());
    step.turn = std::exchange(named_[trace.step.block], {});
    lowered_[trace.step] = {id};  // for a fused instruction, its send
    for (const Place* place : src) wait_for(step, place->writer);
    for (const Place* place : dst) {
      wait_for(step, place->writer);
      for (const std::int32_t reader : place->readers) wait_for(step, reader);
    }
    for (Place* place : dst) {
      place->writer = id;
      place->readers.clear();
    }
    for (Place* place : src) {
      if (place->writer != id) place->readers.push_back(id);
    }
    sort_unique(step.waits);
    sort_unique(step.turn);
    std::erase_if(step.turn,
                  [&](std::int32_t other) { return std::binary_search(step.waits.begin(), step.waits.end(), other); });
    out_.steps.push_back(std::move(step));
  }

  static void wait_for(LoweredStep& step, std::int32_t other) {
    if (other >= 0) step.waits.push_back(other);
  }

  const Program& program_;
  std::int64_t rank_;
  const PieceSizes& sizes_;
  std::int64_t element_;
  std::vector<Place> input_, output_, scratch_;
  std::vector<std::unique_ptr<Place>> hidden_;
  std::map<InstructionId, std::vector<std::int32_t>> lowered_;  // the steps that an instruction became
  std::map<std::int32_t, std::vector<std::int32_t>> named_;  // by block: the steps that its next instruction waits for
  LoweredRank out_;
};

}  // namespace

std::vector<LoweredRank> lower(const Program& program, const SymbolicRun& run, const PieceSizes& sizes,
                               Bytes element_size) {
  WEFT_CHECK(!run.violation);
  WEFT_CHECK(static_cast<std::int64_t>(sizes.size()) == piece_count(program.spec));
  std::vector<std::unique_ptr<RankLowering>> ranks;
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    ranks.push_back(std::make_unique<RankLowering>(program, static_cast<std::int64_t>(rank), sizes, element_size));
  }
  for (const StepTrace& trace : run.steps) ranks[trace.rank]->note_scratch(trace);
  for (const auto& rank : ranks) rank->place_scratch();
  for (const StepTrace& trace : run.steps) ranks[trace.rank]->add(trace);
  std::vector<LoweredRank> result;
  for (const auto& rank : ranks) result.push_back(std::move(*rank).finish());
  return result;
}

}  // namespace weft
