// Ranks as threads over a LocalWorld, for tests of the communicator.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "collective/algorithms.hpp"
#include "comm/communicator.hpp"
#include "comm/local/local_world.hpp"

namespace weft::local_ranks {

// Runs `body(communicator)` on every rank, each a thread; rethrows the first exception.
template <class Body>
void on_ranks(const LocalOptions& options, const CommunicatorOptions& settings, const Body& body) {
  LocalWorld world(options);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(options.ranks));
  std::vector<std::thread> threads;
  for (std::int64_t rank = 0; rank < options.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Communicator communicator(world.transport(rank), settings);
        body(communicator);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

inline std::vector<std::int64_t> all_ranks(std::int64_t count) {
  std::vector<std::int64_t> ranks;
  for (std::int64_t rank = 0; rank < count; ++rank) ranks.push_back(rank);
  return ranks;
}

inline PreparedCall call_of(const ProgramRequest& request, std::int64_t elements, ElementType type = ElementType::fp32,
                            ReduceOp op = ReduceOp::sum) {
  auto program = std::make_shared<const Program>(make_program(request));
  PreparedCall call{
      program, program->spec, even_sizes(program->spec, elements), type, op, all_ranks(std::ssize(program->ranks)),
      0,       "test"};
  return call;
}

}  // namespace weft::local_ranks
