// Programs on buffers above 2 GiB, where a count of 32 bits would overflow: one body for ranks that are threads and for
// processes.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "collective/algorithms.hpp"
#include "comm/communicator.hpp"

namespace weft::large_buffers {

constexpr std::int64_t kElements = (std::int64_t{1} << 29) + 7;  // fp32: 2 GiB and 28 bytes

// Two ranks: the buffer of each, and slots for as much again.
inline bool memory_suffices() {
  return sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE) > 5 * 4 * kElements;
}

inline const std::vector<std::int64_t>& marks() {
  static const std::vector<std::int64_t> places = {0, 1, (1 << 28) - 1, 1 << 28, (1 << 29) - 1, 1 << 29, kElements - 1};
  return places;
}

// Zeros but for the marks, which are (rank + 1) times their number; what they become follows from the collective.
inline void expect_marks(Communicator& communicator, const ProgramRequest& request, float factor) {
  const auto program = std::make_shared<const Program>(make_program(request));
  PreparedCall call;
  call.program = program;
  call.spec = program->spec;
  call.sizes = even_sizes(program->spec, kElements);
  call.members = {0, 1};
  call.label = "large";
  Communicator::Prepared& prepared = communicator.prepare(call);
  std::vector<float> data(static_cast<std::size_t>(kElements));
  const auto mine = static_cast<float>(communicator.rank() + 1);
  for (std::size_t i = 0; i < marks().size(); ++i) {
    data[marks()[i]] = mine * static_cast<float>(i + 1);
  }
  communicator.wait(communicator.start(prepared, nullptr, data.data()));
  for (std::size_t i = 0; i < marks().size(); ++i) {
    EXPECT_EQ(data[marks()[i]], factor * static_cast<float>(i + 1)) << marks()[i];
  }
  EXPECT_EQ(std::ranges::count_if(data, [](float value) { return value != 0; }), std::ssize(marks()));
}

// One message of all bytes, then pieces that begin beyond 2 GiB.
inline void expect_large_programs_work(Communicator& communicator) {
  expect_marks(communicator,
               {.algorithm = Algorithm::direct, .kind = Collective::broadcast, .ranks = 2, .in_place = true}, 1);
  expect_marks(communicator,
               {.algorithm = Algorithm::ring, .kind = Collective::all_reduce, .ranks = 2, .in_place = true}, 3);
}

}  // namespace weft::large_buffers
