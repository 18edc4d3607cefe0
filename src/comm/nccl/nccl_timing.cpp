// How long NCCL's collectives take on these ranks, by themselves: of one place in memory, of several in a group of
// calls each, and of several that are copied together. The result of an all_reduce is checked before it is timed.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>
#include <vector>

#include "collective/piece_sizes.hpp"
#include "comm/nccl/test_nccl_session.hpp"

namespace weft::nccl_ranks {
namespace {

constexpr int kExecutions = 10;
constexpr std::int64_t kGap = 256;  // bytes between places
constexpr std::array<std::int64_t, 3> kBytes = {3 << 18, 3 << 20, 3 << 23};

struct Shape {
  std::string_view words;
  std::int64_t places;  // of every share or block
  bool copied;          // members have places of different lengths, so calls of places would not fit together
};
constexpr std::array<Shape, 5> kShapes = {{{"together", 1, false},
                                           {"4 calls", 4, false},
                                           {"12 calls", 12, false},
                                           {"4 copied", 4, true},
                                           {"12 copied", 12, true}}};

PreparedCall call_of(Collective kind, std::int64_t ranks, std::int64_t bytes) {
  PreparedCall call;
  call.spec = {.kind = kind, .ranks = ranks, .pieces = is_divided(kind) ? ranks : 1};
  call.sizes = even_sizes(call.spec, bytes / 4);
  for (std::int64_t rank = 0; rank < ranks; ++rank) call.members.push_back(rank);
  call.label = "timing";
  return call;
}

// Blocks of equal bytes, each in so many places. The same place of all blocks side by side, as shards of a tensor lie;
// or all places apart.
std::vector<Segment> segments_of(std::byte* base, std::int64_t blocks, std::int64_t block_bytes, std::int64_t places,
                                 bool shards) {
  const std::int64_t usual = block_bytes / places / 16 * 16;
  std::vector<Segment> segments;
  for (std::int64_t block = 0; block < blocks; ++block) {
    for (std::int64_t place = 0; place < places; ++place) {
      const std::int64_t bytes = place + 1 < places ? usual : block_bytes - usual * (places - 1);
      std::byte* const row = base + place * (usual * blocks + kGap);
      std::byte* const apart =
          base + (block * places + place) * (usual + kGap) + block * (block_bytes - usual * places);
      segments.push_back({shards ? row + block * bytes : apart, bytes});
    }
  }
  return segments;
}

struct Timed {
  std::size_t number = 0;
  std::vector<Segment> input, output;
};

class Timings {
 public:
  explicit Timings(Session& session) : session_(session), collectives_(session.make()) {
    require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    for (cudaEvent_t* const event : {&begin_, &end_}) require(cudaEventCreate(event));
    void* memory = nullptr;
    require(cudaMalloc(&memory, 4 * kBytes.back()));
    require(cudaMemset(memory, 0, 4 * kBytes.back()));  // sums stay finite
    memory_ = static_cast<std::byte*>(memory);
  }

  Timed prepare(Collective kind, std::int64_t bytes, const Shape& shape) {
    const std::int64_t ranks = session_.launch.ranks;
    const std::int64_t places = shape.places + (shape.copied ? session_.launch.rank : 0);
    std::byte* const second = memory_ + 2 * kBytes.back();
    Timed timed;
    const bool gathers = kind == Collective::all_gather;
    if (kind == Collective::all_reduce) {
      timed.input = timed.output = segments_of(memory_, 1, bytes, places, false);
    } else if (kind == Collective::all_to_all) {
      timed.input = segments_of(memory_, ranks, bytes / ranks, places, false);
      timed.output = segments_of(second, ranks, bytes / ranks, places, false);
    } else {
      const std::vector<Segment> whole = segments_of(memory_, ranks, bytes / ranks, places, true);
      const std::vector<Segment> own = segments_of(second, 1, bytes / ranks, places, false);
      timed.input = gathers ? own : whole;
      timed.output = gathers ? whole : own;
    }
    timed.number = collectives_->prepare(call_of(kind, ranks, bytes), timed.input, timed.output);
    return timed;
  }

  void connect() { collectives_->connect(); }

  double seconds_of(const Timed& timed) {
    for (int execution = -2; execution < kExecutions; ++execution) {
      if (execution == 0) require(cudaEventRecord(begin_, stream_));
      collectives_->start(timed.number, timed.input, timed.output, stream_);
    }
    require(cudaEventRecord(end_, stream_));
    require(cudaEventSynchronize(end_));
    float milliseconds = 0;
    require(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return static_cast<double>(milliseconds) * 1e-3 / kExecutions;
  }

  void check_sums(const Timed& timed) {
    const auto count = static_cast<std::size_t>(timed.output.front().bytes / 4);
    std::vector<float> values(count, static_cast<float>(session_.launch.rank + 1));
    require(cudaMemcpy(timed.output.front().data, values.data(), count * 4, cudaMemcpyHostToDevice));
    collectives_->start(timed.number, timed.input, timed.output, stream_);
    require(cudaStreamSynchronize(stream_));
    require(cudaMemcpy(values.data(), timed.output.front().data, count * 4, cudaMemcpyDeviceToHost));
    const auto sum = static_cast<float>(session_.launch.ranks * (session_.launch.ranks + 1) / 2);
    if (std::any_of(values.begin(), values.end(), [&](float value) { return value != sum; })) {
      throw std::runtime_error("all_reduce gave a wrong sum");
    }
    require(cudaMemset(timed.output.front().data, 0, count * 4));
  }

 private:
  Session& session_;
  std::unique_ptr<StreamCollectives> collectives_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  std::byte* memory_ = nullptr;
};

}  // namespace

void print_timings(Session& session) {
  Timings timings(session);
  struct Row {
    Collective kind;
    std::int64_t bytes;
    std::string_view shape;
    Timed timed;
  };
  std::vector<Row> rows;
  for (const Collective kind :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all}) {
    for (const std::int64_t bytes : kBytes) {
      for (const Shape& shape : kShapes)
        rows.push_back({kind, bytes, shape.words, timings.prepare(kind, bytes, shape)});
    }
  }
  timings.connect();
  timings.check_sums(rows.front().timed);
  for (const Row& row : rows) {
    const double seconds = timings.seconds_of(row.timed);
    if (session.launch.rank != 0) continue;
    fmt::print(
        "{{\"bench\":\"nccl\",\"collective\":\"{}\",\"ranks\":{},\"bytes\":{},\"shape\":\"{}\",\"seconds\":{:.6f}}}\n",
        name_of(row.kind), session.launch.ranks, row.bytes, row.shape, seconds);
    std::fflush(stdout);
  }
}

}  // namespace weft::nccl_ranks
