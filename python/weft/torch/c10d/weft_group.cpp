#include "weft_group.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "tensors.hpp"

namespace weft_c10d {
namespace {

constexpr std::int64_t kQueues = 1024;  // of a group of Weft's; collectives have the first
constexpr int kTagOfAllToAll = -1;      // PyTorch's own tags are not negative

void require_lists(const std::vector<std::vector<at::Tensor>>& lists, std::size_t count, std::size_t size,
                   const char* what) {
  bool fits = lists.size() == count;
  for (const auto& list : lists) fits = fits && list.size() == size;
  if (!fits) {
    throw std::invalid_argument(std::string("weft: ") + what + ": " + std::to_string(count) + " list(s) of " +
                                std::to_string(size) + " tensors are needed");
  }
}

void require_equal(std::int64_t found, std::int64_t needed, const char* what, const char* of) {
  if (found == needed) return;
  throw std::invalid_argument(std::string("weft: ") + what + ": " + of + " of " + std::to_string(found) +
                              " elements; " + std::to_string(needed) + " are needed");
}

}  // namespace

WeftProcessGroup::WeftProcessGroup(c10::intrusive_ptr<c10d::Store> store, const Joining& joining)
    : BackendBase(static_cast<int>(joining.rank), static_cast<int>(joining.ranks)),
      store_(std::move(store)),
      timeout_(static_cast<std::int64_t>(1000 * joining.timeout_seconds)),
      calls_(joining) {}

WeftProcessGroup::~WeftProcessGroup() = default;

WeftProcessGroup::Pointer WeftProcessGroup::begin(c10d::OpType type, const char* title, Tensors outputs) {
  ++sequence_;
  return c10::make_intrusive<WeftWork>(rank_, type, title, std::move(outputs));
}

WeftProcessGroup::WorkPtr WeftProcessGroup::finished(const Pointer& work) {
  if (coalesces_) coalesced_.push_back(work);
  work->call_ended();
  return work;
}

// Everything travels as bytes unless it is reduced. Inputs that lie in outputs are copied: a call may write before it
// reads. One that an all-gather finds where it would put it, as FSDP does, can stay.
void WeftProcessGroup::run(const Pointer& work, CallKind kind, const Tensors& inputs, const Tensors& outputs) {
  if (kind.elements == 0 && kind.collective != weft_barrier) return;  // on all ranks alike
  Tensors flat_outputs, flat_inputs;
  const Use use = kind.in_place ? Use::kReadAndWrite : Use::kWrite;
  for (const at::Tensor& tensor : outputs) flat_outputs.push_back(flat(tensor, *work, use));
  for (const at::Tensor& tensor : inputs) flat_inputs.push_back(flat(tensor, *work, Use::kRead));
  kind.segments = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::max(inputs.size(), outputs.size())));
  const std::vector<WeftSegment> to = segments_of(flat_outputs);
  for (at::Tensor& input : flat_inputs) {
    const WeftSegment from = segments_of({input})[0];
    const bool is_in_place = kind.collective == weft_all_gather && inputs.size() == 1 && is_at_own_place(from, to);
    const bool overlaps =
        std::any_of(to.begin(), to.end(), [&](const WeftSegment& other) { return overlap(from, other); });
    if (!overlaps || is_in_place) continue;
    input = input.clone();
    work->keep(input);
  }
  calls_.start(work, kind, segments_of(flat_inputs), to);
}

// Of an all-gather: into one tensor, or into one for each rank.
bool WeftProcessGroup::is_at_own_place(const WeftSegment& input, const std::vector<WeftSegment>& outputs) const {
  const auto* const begin = static_cast<const char*>(input.data);
  if (outputs.size() == 1) return begin == static_cast<const char*>(outputs[0].data) + rank_ * input.bytes;
  return begin == outputs[static_cast<std::size_t>(rank_)].data;
}

WeftProcessGroup::WorkPtr WeftProcessGroup::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  require_one(tensors, "broadcast");
  require_rank(options.rootRank, size_, "broadcast");
  const Pointer work = begin(c10d::OpType::BROADCAST, "weft:broadcast", tensors);
  CallKind kind;
  kind.collective = weft_broadcast;
  kind.elements = bytes_of(tensors);
  kind.root = options.rootRank;
  kind.in_place = true;
  run(work, kind, {}, tensors);
  return finished(work);
}

// What the programs cannot reduce is gathered, and reduced here, in the order of the ranks.
void WeftProcessGroup::all_reduce(const Pointer& work, const Tensors& tensors, ReduceOpType op) {
  require_same_type(tensors, "allreduce");
  if (const auto native = native_reduction(tensors[0].scalar_type(), op)) {
    CallKind kind;
    kind.collective = weft_all_reduce;
    kind.type = native->type;
    kind.op = native->op;
    kind.elements = elements_of(tensors);
    kind.in_place = true;
    return run(work, kind, {}, tensors);
  }
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor plain = tensor.detach();
    const at::Tensor rows = at::empty({size_, plain.numel()}, plain.options().device(at::kCPU));
    all_gather(work, {plain}, {rows});
    work->then([plain, rows, op] { plain.copy_(reduce_rows(rows, op).view(plain.sizes())); });
  }
}

WeftProcessGroup::WorkPtr WeftProcessGroup::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  require_one(tensors, "allreduce");
  const Pointer work = begin(c10d::OpType::ALLREDUCE, "weft:all_reduce", tensors);
  all_reduce(work, tensors, options.reduceOp);
  return finished(work);
}

WeftProcessGroup::WorkPtr WeftProcessGroup::allreduce_coalesced(Tensors& tensors,
                                                                const c10d::AllreduceCoalescedOptions& options) {
  const Pointer work = begin(c10d::OpType::ALLREDUCE_COALESCED, "weft:all_reduce", tensors);
  if (!tensors.empty()) all_reduce(work, tensors, options.reduceOp);
  return finished(work);
}

WeftProcessGroup::WorkPtr WeftProcessGroup::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  require_one(tensors, "reduce");
  require_rank(options.rootRank, size_, "reduce");
  const Pointer work = begin(c10d::OpType::REDUCE, "weft:reduce", tensors);
  const ReduceOpType op = options.reduceOp;
  const at::Tensor plain = tensors[0].detach();
  CallKind kind;
  kind.root = options.rootRank;
  if (const auto native = native_reduction(plain.scalar_type(), op)) {
    kind.collective = weft_reduce;
    kind.type = native->type;
    kind.op = native->op;
    kind.elements = plain.numel();
    kind.in_place = true;
    run(work, kind, {}, tensors);
    return finished(work);
  }
  kind.collective = weft_gather;
  kind.elements = size_ * bytes_of(tensors);
  Tensors rows;
  if (rank_ == options.rootRank) {
    rows.push_back(at::empty({size_, plain.numel()}, plain.options().device(at::kCPU)));
    work->then([plain, all = rows[0], op] { plain.copy_(reduce_rows(all, op).view(plain.sizes())); });
  }
  run(work, kind, {plain}, rows);
  return finished(work);
}

void WeftProcessGroup::all_gather(const Pointer& work, const Tensors& inputs, const Tensors& outputs) {
  require_same_type(inputs, "allgather");
  require_same_type(outputs, "allgather");
  require_equal(elements_of(outputs), size_ * elements_of(inputs), "allgather", "outputs");
  CallKind kind;
  kind.collective = weft_all_gather;
  kind.elements = bytes_of(outputs);
  require_equal(kind.elements, size_ * bytes_of(inputs), "allgather", "bytes");
  run(work, kind, inputs, outputs);
}

WeftProcessGroup::WorkPtr WeftProcessGroup::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions&) {
  require_one(inputs, "allgather");
  require_lists(outputs, 1, static_cast<std::size_t>(size_), "allgather");
  for (const at::Tensor& output : outputs[0])
    require_equal(output.numel(), inputs[0].numel(), "allgather", "an output");
  const Pointer work = begin(c10d::OpType::ALLGATHER, "weft:all_gather", outputs[0]);
  all_gather(work, inputs, outputs[0]);
  return finished(work);
}

WeftProcessGroup::WorkPtr WeftProcessGroup::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                            const c10d::AllgatherOptions&) {
  const Pointer work = begin(c10d::OpType::_ALLGATHER_BASE, "weft:_all_gather_base", {output});
  all_gather(work, {input}, {output});
  return finished(work);
}

// outputs[r] are the tensors of rank r.
WeftProcessGroup::WorkPtr WeftProcessGroup::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                                const c10d::AllgatherOptions&) {
  require_lists(outputs, static_cast<std::size_t>(size_), inputs.size(), "allgather_coalesced");
  Tensors all;
  for (const Tensors& of_rank : outputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      require_equal(of_rank[i].numel(), inputs[i].numel(), "allgather_coalesced", "an output");
      all.push_back(of_rank[i]);
    }
  }
  const Pointer work = begin(c10d::OpType::ALLGATHER_COALESCED, "weft:all_gather", all);
  if (!inputs.empty()) all_gather(work, inputs, all);
  return finished(work);
}

WeftProcessGroup::WorkPtr WeftProcessGroup::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                   const c10d::GatherOptions& options) {
  require_one(inputs, "gather");
  require_rank(options.rootRank, size_, "gather");
  const bool is_root = rank_ == options.rootRank;
  require_lists(outputs, is_root ? 1 : 0, static_cast<std::size_t>(size_), "gather");
  const Tensors all = is_root ? outputs[0] : Tensors{};
  for (const at::Tensor& output : all) require_equal(output.numel(), inputs[0].numel(), "gather", "an output");
  const Pointer work = begin(c10d::OpType::GATHER, "weft:gather", all);
  CallKind kind;
  kind.collective = weft_gather;
  kind.elements = size_ * bytes_of(inputs);
  kind.root = options.rootRank;
  run(work, kind, inputs, all);
  return finished(work);
}

WeftProcessGroup::WorkPtr WeftProcessGroup::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                    const c10d::ScatterOptions& options) {
  require_one(outputs, "scatter");
  require_rank(options.rootRank, size_, "scatter");
  const bool is_root = rank_ == options.rootRank;
  require_lists(inputs, is_root ? 1 : 0, static_cast<std::size_t>(size_), "scatter");
  const Tensors all = is_root ? inputs[0] : Tensors{};
  for (const at::Tensor& input : all) require_equal(input.numel(), outputs[0].numel(), "scatter", "an input");
  const Pointer work = begin(c10d::OpType::SCATTER, "weft:scatter", outputs);
  CallKind kind;
  kind.collective = weft_scatter;
  kind.elements = size_ * bytes_of(outputs);
  kind.root = options.rootRank;
  run(work, kind, all, outputs);
  return finished(work);
}

// The inputs are what every rank gets, one after the other.
void WeftProcessGroup::reduce_scatter(const Pointer& work, const Tensors& inputs, const at::Tensor& output,
                                      ReduceOpType op) {
  require_same_type(inputs, "reduce_scatter");
  require_dense(output, "reduce_scatter");
  require_equal(elements_of(inputs), size_ * output.numel(), "reduce_scatter", "inputs");
  CallKind kind;
  if (const auto native = native_reduction(output.scalar_type(), op)) {
    kind.collective = weft_reduce_scatter;
    kind.type = native->type;
    kind.op = native->op;
    kind.elements = elements_of(inputs);
    return run(work, kind, inputs, {output});
  }
  const at::Tensor plain = output.detach();
  const at::Tensor rows = at::empty({size_, plain.numel()}, plain.options().device(at::kCPU));
  kind.collective = weft_all_to_all;
  kind.elements = bytes_of(inputs);
  run(work, kind, inputs, {rows});
  work->then([plain, rows, op] { plain.copy_(reduce_rows(rows, op).view(plain.sizes())); });
}

WeftProcessGroup::WorkPtr WeftProcessGroup::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                           const c10d::ReduceScatterOptions& options) {
  require_one(outputs, "reduce_scatter");
  require_lists(inputs, 1, static_cast<std::size_t>(size_), "reduce_scatter");
  for (const at::Tensor& input : inputs[0])
    require_equal(input.numel(), outputs[0].numel(), "reduce_scatter", "an input");
  const Pointer work = begin(c10d::OpType::REDUCE_SCATTER, "weft:reduce_scatter", outputs);
  reduce_scatter(work, inputs[0], outputs[0], options.reduceOp);
  return finished(work);
}

WeftProcessGroup::WorkPtr WeftProcessGroup::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                                 const c10d::ReduceScatterOptions& options) {
  const Pointer work = begin(c10d::OpType::_REDUCE_SCATTER_BASE, "weft:_reduce_scatter_base", {output});
  reduce_scatter(work, {input}, output, options.reduceOp);
  return finished(work);
}

WeftProcessGroup::WorkPtr WeftProcessGroup::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                          std::vector<std::int64_t>& output_splits,
                                                          std::vector<std::int64_t>& input_splits,
                                                          const c10d::AllToAllOptions&) {
  require_same_type({output, input}, "alltoall");
  const Pointer work = begin(c10d::OpType::ALLTOALL_BASE, "weft:all_to_all", {output});
  if (output_splits.empty() && input_splits.empty()) {
    require_equal(output.numel(), input.numel(), "alltoall", "an output");
    if (input.dim() > 0 && input.size(0) % size_ != 0) {
      throw std::invalid_argument("weft: alltoall: the first dimension is not divisible by the ranks");
    }
    CallKind kind;
    kind.collective = weft_all_to_all;
    kind.elements = bytes_of({input});
    run(work, kind, {input}, {output});
    return finished(work);
  }
  const at::Tensor from = flat(input, *work, Use::kRead), to = flat(output, *work, Use::kWrite);
  const auto sizes = [&](const std::vector<std::int64_t>& splits, const at::Tensor& tensor) {
    return splits.empty() ? std::vector<std::int64_t>(static_cast<std::size_t>(size_), tensor.size(0) / size_) : splits;
  };
  const std::vector<std::int64_t> incoming = sizes(output_splits, to), outgoing = sizes(input_splits, from);
  for (const auto& [splits, tensor] : {std::pair{incoming, to}, std::pair{outgoing, from}}) {
    std::int64_t sum = 0;
    for (const std::int64_t split : splits) sum += split;
    require_equal(static_cast<std::int64_t>(splits.size()), size_, "alltoall", "splits");
    require_equal(sum, tensor.size(0), "alltoall", "a sum of splits");
  }
  all_to_all(work, cut_at(from, outgoing), cut_at(to, incoming));
  return finished(work);
}

WeftProcessGroup::WorkPtr WeftProcessGroup::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions&) {
  require_lists({outputs, inputs}, 2, static_cast<std::size_t>(size_), "alltoall");
  require_same_type(outputs, "alltoall");
  require_same_type(inputs, "alltoall");
  const Pointer work = begin(c10d::OpType::ALLTOALL, "weft:all_to_all", outputs);
  all_to_all(work, inputs, outputs);
  return finished(work);
}

// Sizes are known to both ends of each message alone, so there is no program for all.
void WeftProcessGroup::all_to_all(const Pointer& work, const Tensors& inputs, const Tensors& outputs) {
  const auto self = static_cast<std::size_t>(rank_);
  require_equal(outputs[self].numel(), inputs[self].numel(), "alltoall", "what a rank sends to itself");
  for (int distance = 1; distance < size_; ++distance) {
    const int to = (rank_ + distance) % size_, from = (rank_ + size_ - distance) % size_;
    message(work, outputs[static_cast<std::size_t>(from)], from, rank_, kTagOfAllToAll);
    message(work, inputs[static_cast<std::size_t>(to)], rank_, to, kTagOfAllToAll);
  }
  // At once: the outputs may be a copy, which is copied back when the messages have arrived.
  const at::Tensor to = outputs[self].detach();
  to.copy_(inputs[self].detach().reshape(to.sizes()));
}

// Messages with one sender, receiver and tag follow each other; others do not wait for them. The ranks agree on a queue
// for each by the store, when one of them first needs it.
std::int64_t WeftProcessGroup::queue_of(int sender, int receiver, int tag) {
  const std::lock_guard<std::mutex> lock(queues_mutex_);
  const auto found = queues_.find({sender, receiver, tag});
  if (found != queues_.end()) return found->second;
  const std::string key =
      "weft/queue/" + std::to_string(sender) + "/" + std::to_string(receiver) + "/" + std::to_string(tag);
  if (store_->add(key + "/asked", 1) == 1) {
    const std::string number = std::to_string(store_->add("weft/queues", 1));
    store_->set(key, std::vector<std::uint8_t>(number.begin(), number.end()));
  }
  const std::vector<std::uint8_t> told = store_->get(key);
  const std::int64_t queue = std::stoll(std::string(told.begin(), told.end()));
  if (queue >= kQueues) {
    throw std::runtime_error("weft: messages with more than " + std::to_string(kQueues - 1) +
                             " combinations of sender, receiver and tag in one group");
  }
  queues_[{sender, receiver, tag}] = queue;
  return queue;
}

void WeftProcessGroup::message(const Pointer& work, const at::Tensor& tensor, int sender, int receiver, int tag) {
  CallKind kind;
  kind.collective = weft_send_recv;
  kind.elements = bytes_of({tensor});
  if (kind.elements == 0) return;  // at both ends
  kind.root = sender;
  kind.receiver = receiver;
  kind.queue = queue_of(sender, receiver, tag);
  if (rank_ == sender) {
    run(work, kind, {tensor}, {});
  } else {
    run(work, kind, {}, {tensor});
  }
}

WeftProcessGroup::WorkPtr WeftProcessGroup::send(Tensors& tensors, int receiver, int tag) {
  require_one(tensors, "send");
  require_rank(receiver, size_, "send");
  const Pointer work = begin(c10d::OpType::SEND, "weft:send", tensors);
  message(work, tensors[0], rank_, receiver, tag);
  return finished(work);
}

WeftProcessGroup::WorkPtr WeftProcessGroup::recv(Tensors& tensors, int sender, int tag) {
  require_one(tensors, "recv");
  require_rank(sender, size_, "recv");
  const Pointer work = begin(c10d::OpType::RECV, "weft:recv", tensors);
  message(work, tensors[0], sender, rank_, tag);
  return finished(work);
}

WeftProcessGroup::WorkPtr WeftProcessGroup::barrier(const c10d::BarrierOptions&) {
  const Pointer work = begin(c10d::OpType::BARRIER, "weft:barrier", {});
  CallKind kind;
  kind.collective = weft_barrier;
  run(work, kind, {}, {});
  return finished(work);
}

#if TORCH_VERSION_MAJOR >= 2

WeftProcessGroup::WorkPtr WeftProcessGroup::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                            const c10d::AllgatherOptions&) {
  require_lists({outputs, inputs}, 2, inputs.size(), "allgather_into_tensor_coalesced");
  const Pointer work = begin(c10d::OpType::ALLGATHER_COALESCED, "weft:all_gather", outputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) all_gather(work, {inputs[i]}, {outputs[i]});
  return finished(work);
}

WeftProcessGroup::WorkPtr WeftProcessGroup::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                            const c10d::ReduceScatterOptions& options) {
  require_lists({outputs, inputs}, 2, inputs.size(), "reduce_scatter_tensor_coalesced");
  const Pointer work = begin(c10d::OpType::REDUCE_SCATTER, "weft:reduce_scatter", outputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) reduce_scatter(work, {inputs[i]}, outputs[i], options.reduceOp);
  return finished(work);
}

void WeftProcessGroup::startCoalescing() {
  coalesces_ = true;
}

// Done when all operations since startCoalescing are done.
WeftProcessGroup::WorkPtr WeftProcessGroup::endCoalescing() {
  coalesces_ = false;
  const std::vector<Pointer> works = std::exchange(coalesced_, {});
  const Pointer all = begin(c10d::OpType::COALESCED, "weft:coalesced", {});
  for (const Pointer& work : works) {
    all->add_call();
    work->getFuture()->addCallback([all](c10::ivalue::Future& ended) {
      if (ended.hasError()) return all->fail(ended.exception_ptr());
      all->call_ended();
    });
  }
  all->call_ended();
  return all;
}

#endif

}  // namespace weft_c10d
