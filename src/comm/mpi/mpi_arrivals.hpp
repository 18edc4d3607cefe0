// Receives that wait for their messages, and messages that wait for their receives.
//
// A message is found by MPI_Improbe and its length is checked before the library gets any memory: Open MPI 4.1 writes a
// message that is longer than its receive past the end of the buffer (from 4 KiB on between processes of one machine)
// and reports MPI_ERR_TRUNCATE afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "comm/mpi/mpi_calls.hpp"

namespace weft {

// First in, first out; keeps its memory.
template <class Item>
class ReusedQueue {
 public:
  bool empty() const { return next_ == items_.size(); }
  void push(const Item& item) { items_.push_back(item); }
  Item pop() {
    const Item item = items_[next_++];
    if (empty()) {
      items_.clear();
      next_ = 0;
    }
    return item;
  }

 private:
  std::vector<Item> items_;
  std::size_t next_ = 0;
};

// A piece of a message that a rank is ready to receive.
struct AwaitedPiece {
  Ticket ticket;
  std::int64_t peer = 0;
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
};

// A piece that has arrived. Whoever took it from the library must receive it.
struct ArrivedPiece {
  MPI_Message message = MPI_MESSAGE_NULL;
  std::int64_t bytes = 0;
};

class MpiArrivals {
 public:
  // Calls land(awaited, arrived) at once where the piece has arrived, otherwise later from look().
  template <class Land>
  void await(std::int64_t channel, const AwaitedPiece& piece, const Land& land) {
    ChannelQueue& queue = queue_of(piece.peer, channel);
    if (!queue.arrived.empty()) {
      --held_;
      return land(piece, queue.arrived.pop());
    }
    queue.awaited.push(piece);
    ++awaited_;
  }

  // Takes from the library what has arrived on `comm`, as long as anything is awaited.
  template <class Check, class Land>
  void look(MPI_Comm comm, const Check& check, const Land& land) {
    while (awaited_ > 0) {
      int found = 0;
      ArrivedPiece arrived;
      MPI_Status status;
      check(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &found, &arrived.message, &status), "MPI_Improbe");
      if (found == 0) return;
      int bytes = 0;
      check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
      arrived.bytes = bytes;
      ChannelQueue& queue = queue_of(status.MPI_SOURCE, status.MPI_TAG);
      if (queue.awaited.empty()) {
        queue.arrived.push(arrived);
        ++held_;
        continue;
      }
      --awaited_;
      land(queue.awaited.pop(), arrived);
    }
  }

  // Returns whether no receive waits and no unexpected message was taken from the library.
  bool idle() const { return awaited_ == 0 && held_ == 0; }
  bool awaits_any() const { return awaited_ > 0; }

 private:
  // Messages of a channel from one peer: at most one of the two queues holds anything.
  struct ChannelQueue {
    ReusedQueue<AwaitedPiece> awaited;
    ReusedQueue<ArrivedPiece> arrived;
  };
  ChannelQueue& queue_of(std::int64_t peer, std::int64_t channel) { return queues_[(peer << 20) | channel]; }

  std::unordered_map<std::int64_t, ChannelQueue> queues_;
  std::int64_t awaited_ = 0, held_ = 0;
};

}  // namespace weft
