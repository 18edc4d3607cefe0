#include "collective/verify/symbolic_run.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <deque>
#include <map>
#include <tuple>

namespace weft {
namespace {

using Message = std::vector<Content>;

std::string in_words(const Content& content) {
  return fmt::format("piece {} of rank{} {}", content.piece, content.from.size() == 1 ? "" : "s",
                     fmt::join(content.from.members(), ","));
}

std::string in_words(SlotRef slot) {
  return fmt::format("{} slot {}", name_of(slot.buffer), slot.slot);
}

// Thrown inside a run, caught at its edge.
struct Violation {
  std::string words;
};

class Run {
 public:
  Run(const Program& program, std::int64_t message_slots) : program_(program), message_slots_(message_slots) {
    for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
      next_.emplace_back(program.ranks[rank].blocks.size(), 0);
      auto& slots = slots_.emplace_back();
      const auto r = static_cast<std::int64_t>(rank);
      for (const BufferKind kind : {BufferKind::input, BufferKind::output, BufferKind::scratch}) {
        slots.emplace_back(static_cast<std::size_t>(slot_count(program, r, kind)));
      }
      for (std::int64_t slot = 0; slot < input_slots(program.spec, r); ++slot) {
        at(r, {BufferKind::input, slot}) = initial_content(program.spec, r, slot);
      }
    }
  }

  SymbolicRun run() {
    try {
      while (pass()) {
      }
      check_ended();
      check_postcondition();
    } catch (Violation& violation) {
      result_.violation = std::move(violation.words);
    }
    return std::move(result_);
  }

 private:
  Content& at(std::int64_t rank, SlotRef slot) {
    const SlotRef real = located(program_, rank, slot);
    return slots_[rank][static_cast<std::size_t>(real.buffer)][real.slot];
  }

  std::deque<Message>& connection(std::int64_t from, std::int64_t to, std::int64_t channel) {
    return connections_[{from, to, channel}];
  }

  // Runs every block of every rank as far as it gets. Returns false where none moved.
  bool pass() {
    bool moved = false;
    for (std::size_t rank = 0; rank < next_.size(); ++rank) {
      for (std::size_t block = 0; block < next_[rank].size(); ++block) {
        while (step(static_cast<std::int64_t>(rank), block)) moved = true;
      }
    }
    return moved;
  }

  bool step(std::int64_t rank, std::size_t block) {
    const std::size_t r = rank;
    const ThreadBlock& code = program_.ranks[r].blocks[block];
    std::size_t& next = next_[r][block];
    if (next == code.steps.size()) return false;
    const Instruction& instruction = code.steps[next];
    for (const InstructionId& other : instruction.after) {
      if (next_[r][other.block] <= static_cast<std::size_t>(other.step)) return false;
    }
    std::deque<Message>* in = nullptr;
    std::deque<Message>* out = nullptr;
    if (receives(instruction.kind)) {
      in = &connection(code.receive_from, rank, code.channel);
      if (in->empty()) return false;
    }
    if (sends(instruction.kind)) {
      out = &connection(rank, code.send_to, code.channel);
      if (static_cast<std::int64_t>(out->size()) >= message_slots_) return false;
    }
    here_ = {rank, {static_cast<std::int32_t>(block), static_cast<std::int32_t>(next)}, {}};
    execute(rank, instruction, in, out);
    result_.steps.push_back(std::move(here_));
    ++next;
    return true;
  }

  void execute(std::int64_t rank, const Instruction& instruction, std::deque<Message>* in, std::deque<Message>* out) {
    Message message;
    if (in != nullptr) {
      message = std::move(in->front());
      in->pop_front();
      if (static_cast<std::int64_t>(message.size()) != instruction.count) {
        stop("the message has {} pieces, {} are expected", message.size(), instruction.count);
      }
    }
    for (std::int64_t i = 0; i < instruction.count && instruction.kind != InstructionKind::nop; ++i) {
      const SlotRef src{instruction.src.buffer, instruction.src.slot + i};
      const SlotRef dst{instruction.dst.buffer, instruction.dst.slot + i};
      Content result = in != nullptr ? message[i] : read(rank, src);
      if (reduces(instruction.kind)) result = sum(result, read(rank, in != nullptr ? src : dst));
      if (writes_dst(instruction.kind)) at(rank, dst) = result;
      here_.moved.push_back(std::move(result));
    }
    if (out != nullptr) out->push_back(here_.moved);
  }

  const Content& read(std::int64_t rank, SlotRef slot) {
    const Content& content = at(rank, slot);
    if (content.piece < 0) stop("{} is read before anything is there", in_words(slot));
    return content;
  }

  Content sum(const Content& a, const Content& b) {
    if (!reduces(program_.spec.kind)) stop("{} does not reduce", name_of(program_.spec.kind));
    if (a.piece != b.piece) stop("{} and {} are reduced: different pieces", in_words(a), in_words(b));
    if (a.from.meets(b.from)) stop("{} and {} are reduced: a contribution would count twice", in_words(a), in_words(b));
    Content result = a;
    result.from.add(b.from);
    return result;
  }

  void check_ended() {
    for (std::size_t rank = 0; rank < next_.size(); ++rank) {
      for (std::size_t block = 0; block < next_[rank].size(); ++block) {
        if (next_[rank][block] == program_.ranks[rank].blocks[block].steps.size()) continue;
        here_ = {static_cast<std::int64_t>(rank),
                 {static_cast<std::int32_t>(block), static_cast<std::int32_t>(next_[rank][block])},
                 {}};
        stop("waits for ever with {} message slots a connection", message_slots_);
      }
    }
    for (const auto& [key, messages] : connections_) {
      if (messages.empty()) continue;
      throw Violation{fmt::format("connection {} -> {}, channel {}: {} more message{} sent than received",
                                  std::get<0>(key), std::get<1>(key), std::get<2>(key), messages.size(),
                                  messages.size() == 1 ? " is" : "s are")};
    }
  }

  void check_postcondition() {
    for (std::int64_t rank = 0; rank < program_.spec.ranks; ++rank) {
      for (std::int64_t slot = 0; slot < output_slots(program_.spec, rank); ++slot) {
        const Content& found = at(rank, {BufferKind::output, slot});
        const Content wanted = required_content(program_.spec, rank, slot);
        if (found == wanted) continue;
        throw Violation{fmt::format("rank {}, output slot {}: ends with {}, the {} needs {}", rank, slot,
                                    found.piece < 0 ? "nothing" : in_words(found), name_of(program_.spec.kind),
                                    in_words(wanted))};
      }
    }
  }

  template <class... Args>
  [[noreturn]] void stop(fmt::format_string<Args...> format, Args&&... args) {
    throw Violation{fmt::format("{}: {}", where(program_, here_.rank, here_.step),
                                fmt::format(format, std::forward<Args>(args)...))};
  }

  const Program& program_;
  std::int64_t message_slots_;
  std::vector<std::vector<std::vector<Content>>> slots_;  // by rank, buffer, slot
  std::vector<std::vector<std::size_t>> next_;            // by rank, block
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, std::deque<Message>> connections_;
  StepTrace here_;
  SymbolicRun result_;
};

}  // namespace

SymbolicRun run_symbolically(const Program& program, std::int64_t message_slots) {
  return Run(program, message_slots).run();
}

}  // namespace weft
