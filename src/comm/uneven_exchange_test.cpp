// Exchanges whose sizes are data, over threads and over sockets.
#include "comm/uneven_exchange.hpp"

#include "base/error.hpp"
#include "comm/tcp/tcp_transport.hpp"
#include "comm/tcp/test_reports.hpp"
#include "comm/tcp/test_threads.hpp"
#include "comm/test_ranks.hpp"
#include "comm/test_uneven.hpp"

namespace weft {
namespace {

TEST(UnevenExchange, BringsWhatWasAskedForBetweenThreads) {
  for (const std::int64_t ranks : {1, 2, 3, 4, 8}) {
    for (const bool checks : {false, true}) {
      local_ranks::on_ranks({.ranks = ranks}, {.check = checks}, check_uneven_exchanges);
    }
  }
}

TEST(UnevenExchange, BringsWhatWasAskedForOverTcp) {
  for (const std::int64_t ranks : {2, 3}) {
    tcp::TestRoot root;
    tcp::expect_no_errors(tcp::run_threads(ranks, [&](std::int64_t rank) {
      TcpOptions options{.rank = rank, .size = ranks, .root = root.address, .secret = "test"};
      options.root_listener = root.take_listener(rank);
      Communicator communicator(make_tcp_transport(options), {});
      check_uneven_exchanges(communicator);
    }));
  }
}

TEST(UnevenExchange, RefusesWindowsBeyondABlock) {
  PreparedCall call;
  call.spec = {.kind = Collective::all_to_all, .ranks = 1, .pieces = 1};
  call.members = {0};
  call.label = "rows";
  call.segments = 2;
  call.uneven = UnevenBlocks{.blocks = 1, .units = 4, .unit_bytes = 1};
  std::string words;
  try {
    local_ranks::on_ranks({.ranks = 1}, {}, [&](Communicator& communicator) {
      std::vector<std::byte> input(4), output(4);
      std::vector<ElementRange> outgoing{{2, 5}}, incoming(1);
      const std::int64_t table = sizeof(ElementRange);
      const Segment in[] = {{input.data(), 4}, {reinterpret_cast<std::byte*>(outgoing.data()), table}};
      const Segment out[] = {{output.data(), 4}, {reinterpret_cast<std::byte*>(incoming.data()), table}};
      communicator.wait(communicator.start(communicator.prepare(call), in, out));
    });
  } catch (const RunFailed& failure) {
    words = failure.what();
  }
  EXPECT_NE(words.find("units 2..5 of a block of 4"), std::string::npos) << words;
}

}  // namespace
}  // namespace weft
