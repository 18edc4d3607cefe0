// The library's own collectives on a communicator of the members, which can be called repeatedly.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/mix.hpp"
#include "collective/piece_sizes.hpp"
#include "comm/mpi/mpi_calls.hpp"

namespace weft {

struct MpiGroup {
  MpiGroup(std::shared_ptr<MpiSession> of, MPI_Comm communicator) : session(std::move(of)), comm(communicator) {}
  ~MpiGroup() {
    if (!session->state().abandoned) MPI_Comm_free(&comm);
  }
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  std::shared_ptr<MpiSession> session;
  MPI_Comm comm;
};

namespace {

// Elements by rank, and where they begin; MPI counts in int.
struct Layout {
  std::vector<int> counts, begins;
  bool even = true;

  explicit Layout(std::vector<int> elements) : counts(std::move(elements)), begins(counts.size()) {
    std::exclusive_scan(counts.begin(), counts.end(), begins.begin(), 0);
    even = std::ranges::all_of(counts, [&](int count) { return count == counts.front(); });
  }
  int total() const { return begins.back() + counts.back(); }
};

// MPI has no type for floats of less than 32 bits, but moving data needs none.
MPI_Datatype datatype_of(ElementType type) {
  const MPI_Datatype types[] = {MPI_FLOAT,   MPI_UINT16_T, MPI_UINT16_T, MPI_UINT8_T,
                                MPI_INT32_T, MPI_INT64_T,  MPI_UINT8_T};
  return types[static_cast<std::size_t>(type)];
}

MPI_Op op_of(ReduceOp op) {
  return op == ReduceOp::max ? MPI_MAX : op == ReduceOp::min ? MPI_MIN : MPI_SUM;
}

template <class Element>
void divide_elements(std::byte* data, std::int64_t elements, std::int64_t divisor) {
  Element* values = reinterpret_cast<Element*>(data);
  for (std::int64_t i = 0; i < elements; ++i) values[i] /= static_cast<Element>(divisor);
}

// Integers are rounded towards zero.
void divide(std::byte* data, std::int64_t elements, ElementType type, std::int64_t divisor) {
  if (type == ElementType::fp32) divide_elements<float>(data, elements, divisor);
  if (type == ElementType::i32) divide_elements<std::int32_t>(data, elements, divisor);
  if (type == ElementType::i64) divide_elements<std::int64_t>(data, elements, divisor);
}

// The elements of `slots` consecutive pieces.
int sum_of(const PieceSizes& sizes, std::int64_t first, std::int64_t slots) {
  const auto begin = sizes.begin() + first;
  return static_cast<int>(std::accumulate(begin, begin + slots, std::int64_t{0}));
}

// The parts of the buffer that is divided among the ranks, or one part where none is.
Layout slices_of(const NativeRequest& request) {
  const bool divided = is_divided(request.spec.kind) && request.spec.kind != Collective::all_to_all;
  const std::int64_t parts = divided ? request.spec.ranks : 1;
  const std::int64_t slots = request.spec.pieces / parts;
  std::vector<int> slices;
  for (std::int64_t r = 0; r < parts; ++r) slices.push_back(sum_of(request.sizes, r * slots, slots));
  return Layout(std::move(slices));
}

// all_to_all: what `rank` sends to each rank, or receives from each.
Layout exchanged(const NativeRequest& request, std::int64_t rank, bool incoming) {
  const std::int64_t slots = request.spec.pieces / request.spec.ranks;
  std::vector<int> counts;
  for (std::int64_t other = 0; other < request.spec.ranks; ++other) {
    const std::int64_t src = incoming ? other : rank;
    const std::int64_t dst = incoming ? rank : other;
    counts.push_back(sum_of(request.sizes, src * request.spec.pieces + dst * slots, slots));
  }
  return Layout(std::move(counts));
}

class MpiCollective final : public NativeCollective {
 public:
  MpiCollective(std::shared_ptr<MpiSession> session, std::shared_ptr<MpiGroup> group, const NativeRequest& request,
                int rank)
      : session_(std::move(session)),
        group_(std::move(group)),
        request_(request),
        rank_(rank),
        root_(static_cast<int>(request.spec.root)),
        ranks_(static_cast<int>(request.spec.ranks)),
        type_(datatype_of(request.type)),
        op_(op_of(request.op)),
        element_bytes_(size_of(request.type).value) {
    if (request_.spec.kind == Collective::all_to_all) {
      outgoing_ = exchanged(request_, rank_, false);
      incoming_ = exchanged(request_, rank_, true);
      // All ranks must decide alike whether a call is even, so the decision uses all sizes.
      for (std::int64_t r = 0; r < ranks_; ++r) {
        const Layout other = exchanged(request_, r, false);
        outgoing_.even = outgoing_.even && other.even && other.counts.front() == outgoing_.counts.front();
      }
    } else {
      slices_ = slices_of(request_);
    }
  }

  // A call that is under way may still write to memory that is about to be freed.
  ~MpiCollective() override {
    if (under_way_) session_->abandon();
  }

  void run(const std::byte* input, std::byte* output) override {
    polled_ = false;
    call(input, output);
    finish();
  }

  void start(const std::byte* input, std::byte* output) override {
    WEFT_CHECK(!under_way_);
    polled_ = under_way_ = true;
    call(input, output);
  }

  bool done() override {
    if (!under_way_) return true;
    int over = 0;
    check(MPI_Test(&request_in_flight_, &over, MPI_STATUS_IGNORE), "MPI_Test");
    if (over == 0) return false;
    under_way_ = false;
    finish();
    return true;
  }

 private:
  void call(const std::byte* input, std::byte* output) {
    in_place_ = input == output;
    result_ = {};
    switch (request_.spec.kind) {
      case Collective::broadcast:
        return broadcast(input, output);
      case Collective::reduce:
        return reduce(input, output);
      case Collective::gather:
        return gather(input, output);
      case Collective::scatter:
        return scatter(input, output);
      case Collective::all_gather:
        return all_gather(input, output);
      case Collective::reduce_scatter:
        return reduce_scatter(input, output);
      case Collective::all_reduce:
        return all_reduce(input, output);
      case Collective::all_to_all:
        return all_to_all(input, output);
      case Collective::send_recv:
        return send_or_receive(input, output);
      case Collective::barrier:
        return barrier(input, output);
    }
  }

  // What remains to be done with a result that the library has left in `data`.
  struct Result {
    std::byte* data = nullptr;
    std::int64_t elements = 0;
    std::byte* moves_to = nullptr;  // null: it stays
  };
  void finish() {
    if (result_.data == nullptr) return;
    if (request_.op == ReduceOp::average) divide(result_.data, result_.elements, request_.type, ranks_);
    if (result_.moves_to != nullptr) copy(result_.moves_to, result_.data, bytes_of(result_.elements));
  }

  void check(int code, std::string_view call) {
    if (code == MPI_SUCCESS) return;
    session_->abandon();
    mpi_check(code, call);
  }

  // The blocking and the immediate form of a call take the same arguments, then the communicator; the immediate one
  // also takes a request.
  template <class Blocking, class Starting, class... Arguments>
  void issue(std::string_view name, Blocking blocking, Starting starting, Arguments... arguments) {
    if (polled_) {
      check(starting(arguments..., group_->comm, &request_in_flight_), name);
    } else {
      check(blocking(arguments..., group_->comm), name);
    }
  }

  bool is_root() const { return rank_ == root_; }
  int own_count() const { return slices_.counts[rank_]; }
  std::int64_t bytes_of(std::int64_t elements) const { return elements * element_bytes_; }

  std::byte* stage(std::int64_t bytes) {
    if (std::ssize(staging_) < bytes) staging_.resize(bytes);
    return staging_.data();
  }

  const std::byte* move_aside(const std::byte* input, std::int64_t bytes) {
    std::byte* aside = stage(bytes);
    copy(aside, input, bytes);
    return aside;
  }

  void copy(std::byte* to, const std::byte* from, std::int64_t bytes) const {
    if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }

  void broadcast(const std::byte* input, std::byte* output) {
    if (is_root()) copy(output, input, bytes_of(slices_.total()));
    issue("MPI_Bcast", MPI_Bcast, MPI_Ibcast, output, slices_.total(), type_, root_);
  }

  // Avoids MPI_IN_PLACE: MPICH 4.0 reads from that "address" where the root is not the first rank of its machine.
  void reduce(const std::byte* input, std::byte* output) {
    if (in_place_ && is_root()) input = move_aside(input, bytes_of(slices_.total()));
    if (is_root()) result_ = {output, slices_.total()};
    issue("MPI_Reduce", MPI_Reduce, MPI_Ireduce, input, output, slices_.total(), type_, op_, root_);
  }

  void all_reduce(const std::byte* input, std::byte* output) {
    const void* from = in_place_ ? MPI_IN_PLACE : input;
    result_ = {output, slices_.total()};
    issue("MPI_Allreduce", MPI_Allreduce, MPI_Iallreduce, from, output, slices_.total(), type_, op_);
  }

  void gather(const std::byte* input, std::byte* output) {
    const void* from = in_place_ && is_root() ? MPI_IN_PLACE : input;
    if (slices_.even) {
      issue("MPI_Gather", MPI_Gather, MPI_Igather, from, own_count(), type_, output, own_count(), type_, root_);
    } else {
      issue("MPI_Gatherv", MPI_Gatherv, MPI_Igatherv, from, own_count(), type_, output, slices_.counts.data(),
            slices_.begins.data(), type_, root_);
    }
  }

  void scatter(const std::byte* input, std::byte* output) {
    void* to = in_place_ && is_root() ? MPI_IN_PLACE : output;
    if (slices_.even) {
      issue("MPI_Scatter", MPI_Scatter, MPI_Iscatter, input, own_count(), type_, to, own_count(), type_, root_);
    } else {
      issue("MPI_Scatterv", MPI_Scatterv, MPI_Iscatterv, input, slices_.counts.data(), slices_.begins.data(), type_, to,
            own_count(), type_, root_);
    }
  }

  void all_gather(const std::byte* input, std::byte* output) {
    const void* from = in_place_ ? MPI_IN_PLACE : input;
    if (slices_.even) {
      issue("MPI_Allgather", MPI_Allgather, MPI_Iallgather, from, own_count(), type_, output, own_count(), type_);
    } else {
      issue("MPI_Allgatherv", MPI_Allgatherv, MPI_Iallgatherv, from, own_count(), type_, output, slices_.counts.data(),
            slices_.begins.data(), type_);
    }
  }

  // In place, Weft puts the result where the rank's part was; MPI would put it at the beginning of the buffer.
  void reduce_scatter(const std::byte* input, std::byte* output) {
    std::byte* to = in_place_ ? stage(bytes_of(own_count())) : output;
    result_ = {to, own_count()};
    if (in_place_) result_.moves_to = output + bytes_of(slices_.begins[rank_]);
    if (slices_.even) {
      issue("MPI_Reduce_scatter_block", MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, input, to, own_count(),
            type_, op_);
    } else {
      issue("MPI_Reduce_scatter", MPI_Reduce_scatter, MPI_Ireduce_scatter, input, to, slices_.counts.data(), type_,
            op_);
    }
  }

  // In place, MPI requires equal amounts in both directions between two ranks. Ours may differ, so the input is copied
  // aside.
  void all_to_all(const std::byte* input, std::byte* output) {
    if (in_place_) input = move_aside(input, bytes_of(outgoing_.total()));
    if (outgoing_.even) {
      const int count = outgoing_.counts.front();
      issue("MPI_Alltoall", MPI_Alltoall, MPI_Ialltoall, input, count, type_, output, count, type_);
    } else {
      issue("MPI_Alltoallv", MPI_Alltoallv, MPI_Ialltoallv, input, outgoing_.counts.data(), outgoing_.begins.data(),
            type_, output, incoming_.counts.data(), incoming_.begins.data(), type_);
    }
  }

  void barrier(const std::byte*, std::byte*) { issue("MPI_Barrier", MPI_Barrier, MPI_Ibarrier); }

  void send_or_receive(const std::byte* input, std::byte* output) {
    if (is_root()) {
      issue("MPI_Send", MPI_Send, MPI_Isend, input, slices_.total(), type_, 1 - root_, 0);
    } else {
      const auto receive = [](void* to, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm) {
        return MPI_Recv(to, count, type, from, tag, comm, MPI_STATUS_IGNORE);
      };
      issue("MPI_Recv", receive, MPI_Irecv, output, slices_.total(), type_, root_, 0);
    }
  }

  std::shared_ptr<MpiSession> session_;
  std::shared_ptr<MpiGroup> group_;
  NativeRequest request_;
  int rank_, root_, ranks_;
  MPI_Datatype type_;
  MPI_Op op_;
  std::int64_t element_bytes_;
  Layout slices_{{0}};    // all kinds but all_to_all
  Layout outgoing_{{0}};  // all_to_all
  Layout incoming_{{0}};
  std::vector<std::byte> staging_;
  bool polled_ = false, under_way_ = false, in_place_ = false;
  MPI_Request request_in_flight_ = MPI_REQUEST_NULL;
  Result result_;
};

// Decided by what all members know, so that all decide alike.
bool can_be_called(const NativeRequest& request) {
  const bool narrow_float = is_float(request.type) && request.type != ElementType::fp32;
  if (narrow_float && reduces(request.spec.kind) && request.spec.kind != Collective::barrier) return false;
  for (std::int64_t r = 0; r < request.spec.ranks; ++r) {
    const std::int64_t most =
        std::max(input_elements(request.spec, request.sizes, r), output_elements(request.spec, request.sizes, r));
    if (most > std::numeric_limits<int>::max()) return false;
  }
  return true;
}

MPI_Comm communicator_of(MPI_Comm all, const std::vector<std::int64_t>& members) {
  const std::vector<int> ranks(members.begin(), members.end());
  MPI_Group everyone = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
  MPI_Comm communicator = MPI_COMM_NULL;
  mpi_check(MPI_Comm_group(all, &everyone), "MPI_Comm_group");
  mpi_check(MPI_Group_incl(everyone, static_cast<int>(ranks.size()), ranks.data(), &group), "MPI_Group_incl");
  mpi_check(MPI_Comm_create_group(all, group, 0, &communicator), "MPI_Comm_create_group");
  MPI_Group_free(&group);
  MPI_Group_free(&everyone);
  WEFT_CHECK(communicator != MPI_COMM_NULL);  // the caller is a member
  mpi_check(MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return communicator;
}

// What must be equal on all members: the library trusts that, and writes past buffers where it is not.
using CallNumbers = std::array<std::int64_t, 7>;

CallNumbers numbers_of(const NativeRequest& request) {
  std::uint64_t hash = 0;
  for (const std::int64_t size : request.sizes) hash = mix_bits(hash ^ static_cast<std::uint64_t>(size));
  return {static_cast<std::int64_t>(request.spec.kind),
          std::accumulate(request.sizes.begin(), request.sizes.end(), std::int64_t{0}),
          static_cast<std::int64_t>(request.type),
          static_cast<std::int64_t>(request.op),
          request.spec.root,
          request.queue,
          static_cast<std::int64_t>(hash)};
}

std::string in_words(const CallNumbers& call) {
  return fmt::format("{} of {} x {}, {}, root {} on queue {}", name_of(static_cast<Collective>(call[0])), call[1],
                     name_of(static_cast<ElementType>(call[2])), name_of(static_cast<ReduceOp>(call[3])), call[4],
                     call[5]);
}

void compare_members(MPI_Comm comm, const NativeRequest& request) {
  const CallNumbers own = numbers_of(request);
  std::vector<CallNumbers> all(request.members.size());
  constexpr int kCount = static_cast<int>(std::tuple_size_v<CallNumbers>);
  mpi_check(MPI_Allgather(own.data(), kCount, MPI_INT64_T, all.data(), kCount, MPI_INT64_T, comm), "MPI_Allgather");
  for (std::size_t member = 0; member < all.size(); ++member) {
    if (all[member] == all.front()) continue;
    throw RunFailed(fmt::format("rank {} prepares a native {}, but rank {} a native {}", request.members[member],
                                in_words(all[member]), request.members.front(), in_words(all.front())));
  }
}

}  // namespace

std::unique_ptr<NativeCollective> make_mpi_collective(std::shared_ptr<MpiSession> session, MPI_Comm everyone,
                                                      MpiGroups& groups, const NativeRequest& request) {
  validate(request.spec, "native");
  WEFT_CHECK(std::ssize(request.members) == request.spec.ranks);
  WEFT_CHECK(std::ssize(request.sizes) == piece_count(request.spec));
  if (!can_be_called(request)) return nullptr;
  const auto self = std::ranges::find(request.members, session->rank());
  WEFT_CHECK(self != request.members.end());
  const int rank = static_cast<int>(self - request.members.begin());
  std::weak_ptr<MpiGroup>& known = groups[{request.members, request.queue}];
  std::shared_ptr<MpiGroup> group = known.lock();
  if (group == nullptr) {
    group = std::make_shared<MpiGroup>(session, communicator_of(everyone, request.members));
    known = group;
  }
  compare_members(group->comm, request);
  return std::make_unique<MpiCollective>(std::move(session), std::move(group), request, rank);
}

}  // namespace weft
