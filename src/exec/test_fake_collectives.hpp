// Collectives between fake accelerators of one process: when all members have come to a call, the last one carries it
// out for all of them, straight from the definition.
#pragma once

#include <map>
#include <mutex>

#include "comm/reduce_kernels.hpp"
#include "comm/stream_collectives.hpp"
#include "exec/test_fake_accelerator.hpp"

namespace weft::test {

// What the accelerators of all ranks share.
class FakeFabric {
 public:
  struct Buffers {
    std::vector<Segment> input, output;
  };
  struct Meeting {
    std::map<std::int64_t, Buffers> members;
    bool over = false;
  };

  // Returns whether the call is over. `turn` counts the calls of these members on this queue.
  bool take_part(const PreparedCall& call, std::int64_t turn, std::int64_t rank, const Buffers& own) {
    const std::lock_guard lock(mutex_);
    std::vector<std::int64_t> members = call.members;
    std::ranges::sort(members);
    Meeting& meeting = meetings_[{members, call.queue, turn}];
    std::int64_t& over = over_[{members, call.queue, rank}];
    // As on a communicator of NCCL's, a rank's calls run one after the other.
    if (meeting.members.try_emplace(rank, own).second) WEFT_CHECK(turn == over);
    if (!meeting.over && meeting.members.size() == call.members.size()) {
      carry_out(call, meeting);
      meeting.over = true;
    }
    if (meeting.over) over = turn + 1;
    return meeting.over;
  }

 private:
  // Bytes, which encoded tensors are, become a float each.
  static std::vector<float> floats_in(const std::vector<Segment>& segments, ElementType type) {
    std::vector<float> all;
    for (const Segment& segment : segments) {
      if (type == ElementType::u8) {
        const auto* const first = reinterpret_cast<const std::uint8_t*>(segment.data);
        all.insert(all.end(), first, first + segment.bytes);
        continue;
      }
      const auto* const first = reinterpret_cast<const float*>(segment.data);
      all.insert(all.end(), first, first + segment.bytes / 4);
    }
    return all;
  }
  static void put(std::span<const float> from, const std::vector<Segment>& segments, ElementType type, bool add) {
    std::size_t at = 0;
    for (const Segment& segment : segments) {
      if (type == ElementType::u8) {
        for (std::int64_t i = 0; i < segment.bytes; ++i) segment.data[i] = static_cast<std::byte>(from[at++]);
        continue;
      }
      auto* const to = reinterpret_cast<float*>(segment.data);
      for (std::int64_t i = 0; i < segment.bytes / 4; ++i, ++at) to[i] = add ? to[i] + from[at] : from[at];
    }
    WEFT_CHECK(at == from.size());
  }

  // Pieces of the buffer of the whole, one after the other, by member.
  static void carry_out(const PreparedCall& call, Meeting& meeting) {
    const bool reduces = call.spec.kind == Collective::all_reduce || call.spec.kind == Collective::reduce_scatter;
    WEFT_CHECK(call.op == ReduceOp::sum);
    WEFT_CHECK(call.type == ElementType::fp32 || (call.type == ElementType::u8 && !reduces && !call.accumulate));
    const std::size_t ranks = call.members.size();
    std::vector<std::vector<float>> in;
    for (const std::int64_t rank : call.members) {
      const Buffers& own = meeting.members.at(rank);
      in.push_back(
          floats_in(own.input.empty() && call.spec.kind != Collective::send_recv ? own.output : own.input, call.type));
    }
    std::vector<float> sum = in.front();
    const auto begin_of = [&](std::size_t member) {
      const std::size_t slots = static_cast<std::size_t>(call.spec.pieces) / ranks;
      std::int64_t begin = 0;
      for (std::size_t i = 0; i < member * slots; ++i) begin += call.sizes[i];
      return static_cast<std::size_t>(begin);
    };
    for (std::size_t r = 1; reduces && r < ranks; ++r) {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += in[r][i];
    }
    for (std::size_t r = 0; r < ranks; ++r) {
      const Buffers& own = meeting.members.at(call.members[r]);
      std::vector<float> out;
      switch (call.spec.kind) {
        case Collective::all_reduce:
          out = sum;
          break;
        case Collective::reduce_scatter: {
          const std::span<const float> share =
              std::span<const float>(sum).subspan(begin_of(r), begin_of(r + 1) - begin_of(r));
          // In place, a share stays where it is in the whole.
          if (elements(own.output) == sum.size()) {
            put_at(share, own.output, begin_of(r));
            continue;
          }
          out.assign(share.begin(), share.end());
          break;
        }
        case Collective::all_gather:
          for (std::size_t m = 0; m < ranks; ++m) {
            const std::span<const float> all = in[m];
            const std::size_t size = begin_of(m + 1) - begin_of(m);
            const std::span<const float> share = all.size() == size ? all : all.subspan(begin_of(m), size);
            out.insert(out.end(), share.begin(), share.end());
          }
          break;
        case Collective::all_to_all:
          for (std::size_t m = 0; m < ranks; ++m) {
            const std::size_t size = in[m].size() / ranks;
            out.insert(out.end(), in[m].begin() + static_cast<std::ptrdiff_t>(r * size),
                       in[m].begin() + static_cast<std::ptrdiff_t>((r + 1) * size));
          }
          break;
        case Collective::send_recv:
          if (r == 0) continue;
          out = in.front();
          break;
        default:
          WEFT_CHECK(false);
      }
      put(out, own.output, call.type, call.accumulate);
    }
  }
  static std::size_t elements(const std::vector<Segment>& segments) {
    std::int64_t bytes = 0;
    for (const Segment& segment : segments) bytes += segment.bytes;
    return static_cast<std::size_t>(bytes / 4);
  }
  static void put_at(std::span<const float> from, const std::vector<Segment>& segments, std::size_t begin) {
    std::vector<float> all = floats_in(segments, ElementType::fp32);
    std::ranges::copy(from, all.begin() + static_cast<std::ptrdiff_t>(begin));
    put(all, segments, ElementType::fp32, false);
  }

  std::mutex mutex_;
  std::map<std::tuple<std::vector<std::int64_t>, std::int64_t, std::int64_t>, std::int64_t> over_;  // calls, by rank
  std::map<std::tuple<std::vector<std::int64_t>, std::int64_t, std::int64_t>, Meeting> meetings_;
};

class FakeCollectives final : public StreamCollectives {
 public:
  FakeCollectives(FakeFabric& fabric, std::int64_t rank, bool needs_rehearsal = false)
      : fabric_(fabric), rank_(rank), needs_rehearsal_(needs_rehearsal) {}

  std::size_t prepare(const PreparedCall& call, std::span<const Segment>, std::span<const Segment>) override {
    calls_.push_back(call);
    return calls_.size() - 1;
  }
  void connect() override {}
  void start(std::size_t prepared, std::span<const Segment> input, std::span<const Segment> output,
             void* stream) override {
    const PreparedCall& call = calls_[prepared];
    std::vector<std::int64_t> members = call.members;
    std::ranges::sort(members);
    const FakeFabric::Buffers own{{input.begin(), input.end()}, {output.begin(), output.end()}};
    FakeAccelerator::call_in(stream, [this, &call, own, &next = turns_[{members, call.queue}]] {
      const std::int64_t turn = next++;
      return [this, &call, turn, own] {
        return failure_.empty() && !stands_still_ && fabric_.take_part(call, turn, rank_, own);
      };
    });
  }
  bool can_be_recorded() const override { return !needs_rehearsal_; }
  bool needs_rehearsal() const override { return needs_rehearsal_; }
  std::string failure() override { return failure_; }
  void abort(const std::string&) override {}
  const std::deque<PreparedCall>& calls() const { return calls_; }
  // Nothing that is started from now on ends.
  void break_with(const std::string& failure) { failure_ = failure; }
  // The same without a word, as where collectives wait for each other.
  void stand_still() { stands_still_ = true; }

 private:
  FakeFabric& fabric_;
  std::int64_t rank_;
  bool needs_rehearsal_;
  std::string failure_;
  bool stands_still_ = false;
  std::deque<PreparedCall> calls_;
  std::map<std::pair<std::vector<std::int64_t>, std::int64_t>, std::int64_t> turns_;
};

}  // namespace weft::test
