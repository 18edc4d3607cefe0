// Programs as other tools write them: blocks that send and receive, fused instructions, several channels, messages of
// several slots, helper ranks.
#pragma once

#include "collective/program.hpp"

namespace weft::testing {

// One block per rank and channel that receives from the previous rank and sends to the next: send,
// receive_reduce_send ..., receive_reduce_copy_send, receive_copy_send ..., receive. In place.
Program fused_ring_all_reduce(std::int64_t ranks, std::int64_t channels);
// A block per peer that sends to it and receives from it, and one that copies.
Program direct_all_to_all(std::int64_t ranks);
// In place; ranks is a power of two. The messages double in slots.
Program recursive_doubling_all_gather(std::int64_t ranks);
// Every rank sends both pieces to a helper that adds them up and sends the sums back.
Program all_reduce_by_helper(std::int64_t ranks);

}  // namespace weft::testing
