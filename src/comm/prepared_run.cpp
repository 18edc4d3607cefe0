#include "comm/prepared_run.hpp"

#include <fmt/format.h>

#include <numeric>

#include "base/error.hpp"
#include "base/text.hpp"
#include "collective/lowered.hpp"
#include "collective/verify/verify_program.hpp"
#include "comm/native_library.hpp"
#include "comm/prepared_call.hpp"

namespace weft {

void Communicator::Prepared::build_native(NativeLibrary* library, std::int64_t member, NativeStaging& staging) {
  auto collective = library == nullptr
                        ? nullptr
                        : library->prepare({call.spec, call.type, call.op, call.members, call.sizes, call.queue});
  if (collective == nullptr) {
    weft::fail("{}: this transport has no {} of its own for {}", call.label, name_of(call.spec.kind),
               name_of(call.type));
  }
  NativeRun::Settings settings{call.type, call.op, call.blocking};
  if (call.accumulate) settings.accumulated = own_part_of_input(call, member);
  native = std::make_unique<NativeRun>(std::move(collective), settings, staging);
  input_bytes = input_elements(call.spec, call.sizes, member) * size_of(call.type).value;
  output_bytes = output_elements(call.spec, call.sizes, member) * size_of(call.type).value;
}

void Communicator::Prepared::build_program(Transport& transport, std::int64_t member, std::int64_t first_channel,
                                           std::int64_t credit) {
  const ProgramVerdict proof = verify_program(*call.program);
  if (!proof.accepted()) weft::fail("program {}: {}", call.program->name, proof.words());
  std::vector<LoweredRank> lowered = lower(*call.program, proof.run, call.sizes, size_of(call.type));
  const double scale = call.op == ReduceOp::average ? 1.0 / static_cast<double>(call.spec.ranks) : 1.0;
  RunSettings settings{call.type, call.op, scale, call.members, first_channel, credit, call.segments};
  if (call.accumulate && member < call.spec.ranks) settings.accumulated = own_part_of_input(call, member);
  run = std::make_unique<ProgramRun>(std::move(lowered[member]), std::move(settings), transport);
  input_bytes = run->input_bytes();
  output_bytes = run->output_bytes();
}

void Communicator::Prepared::start() {
  if (native != nullptr) return native->start(input, output);
  if (exchange != nullptr) return exchange->start(input, output);
  run->start(input, output);
}

bool Communicator::Prepared::advance() {
  if (exchange != nullptr) return exchange->advance();
  return native != nullptr ? native->advance() : run->advance();
}

bool Communicator::Prepared::is_over() const {
  if (exchange != nullptr) return exchange->done();
  return native != nullptr ? native->done() : run->done();
}

std::string Communicator::Prepared::in_words() const {
  const std::int64_t elements = std::accumulate(call.sizes.begin(), call.sizes.end(), std::int64_t{0});
  return fmt::format("{}{} (call {} of queue {}: {} x {}, {})", name_of(call.spec.kind),
                     call.label.empty() ? "" : " '" + call.label + "'", note.turn, call.queue, format_count(elements),
                     name_of(call.type), program_in_words(call));
}

}  // namespace weft
