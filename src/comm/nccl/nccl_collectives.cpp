#include "comm/nccl/nccl_collectives.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "collective/verify/verify_program.hpp"
#include "comm/nccl/nccl_agreement.hpp"
#include "comm/nccl/round_calls.hpp"
#include "comm/nccl/wire_form.hpp"
#include "comm/prepared_call.hpp"

namespace weft {
namespace {

bool is_carried_out(Collective kind) {
  return kind == Collective::all_reduce || kind == Collective::all_gather || kind == Collective::reduce_scatter ||
         kind == Collective::all_to_all || kind == Collective::send_recv;
}

void require_carried_out(const PreparedCall& call) {
  if (call.uneven) fail("{}: exchanges whose sizes are data are not carried out in streams", call.label);
  if (call.type == ElementType::fp8) fail("{}: NCCL has no elements of {}", call.label, name_of(call.type));
  WEFT_CHECK(std::ssize(call.sizes) == piece_count(call.spec));
  if (call.program != nullptr) {
    WEFT_CHECK(call.members.size() == call.program->ranks.size());
    return;
  }
  if (!is_carried_out(call.spec.kind)) fail("{}: no {} is carried out in streams", call.label, name_of(call.spec.kind));
  WEFT_CHECK(std::ssize(call.members) == call.spec.ranks);
}

bool needs_pairs(const PreparedCall& call) {
  const bool is_program = call.program != nullptr && call.members.size() > 1;
  return is_program || call.spec.kind == Collective::all_to_all || call.spec.kind == Collective::send_recv;
}

RankRounds rounds_of(const PreparedCall& call, std::int64_t member) {
  const ProgramVerdict proof = verify_program(*call.program);
  if (!proof.accepted()) fail("program {}: {}", call.program->name, proof.words());
  return rounds_of(lower(*call.program, proof.run, call.sizes, size_of(call.type)), member);
}

class NcclCollectives final : public StreamCollectives {
 public:
  NcclCollectives(std::int64_t rank, std::unique_ptr<NcclLinks> links, Exchange exchange)
      : rank_(rank), links_(std::move(links)), exchange_(std::move(exchange)) {}

  std::size_t prepare(const PreparedCall& call, std::span<const Segment> input,
                      std::span<const Segment> output) override {
    require_carried_out(call);
    Call& noted = calls_.emplace_back();
    noted.call = call;
    noted.call.on_done = {};
    noted.member = member_of(call, rank_);
    noted.group = group_of(call);
    for (const std::int64_t member : call.members) {
      const auto& all = noted.group.members;
      noted.peers.push_back(static_cast<int>(std::find(all.begin(), all.end(), member) - all.begin()));
    }
    if (call.program != nullptr) {
      noted.rounds = rounds_of(call, noted.member);
    } else {
      noted.form = fitting_form(call, noted.member, input, output, links_->least_bytes_of_a_call());
    }
    noted.input.assign(input.begin(), input.end());
    noted.output.assign(output.begin(), output.end());
    return calls_.size() - 1;
  }

  void connect() override {
    const std::span<Call> calls = std::span(calls_).subspan(connected_);
    number_queues(calls);
    std::vector<NcclOffer> offers;
    for (const Call& each : calls) offers.push_back({each.group, note_of(each.call), hash_of(each.form)});
    const NcclAgreement agreement = agree_on_calls(offers, exchange_);
    for (const std::vector<NcclGroup>& round : agreement.rounds) join(round, calls);
    std::map<std::int64_t, std::int64_t> scratch;  // bytes by queue
    for (std::size_t i = 0; i < calls.size(); ++i) {
      Call& each = calls[i];
      each.communicator = communicators_.at(each.group);
      if (!agreement.same_form[i]) each.form = plain_form(each.call);
      std::int64_t& most = scratch[each.call.queue];
      most = std::max(most, scratch_of(each));
      each.input = each.output = {};
    }
    for (const auto& [queue, bytes] : scratch) reserve(queue, bytes);
    connected_ = calls_.size();
  }

  void start(std::size_t prepared, std::span<const Segment> input, std::span<const Segment> output,
             void* stream) override {
    WEFT_CHECK(prepared < connected_);
    const Call& call = calls_[prepared];
    if (call.rounds) return start_rounds(call, input, output, stream);
    WireCalls bound = bind(call, input, output, scratch_[call.call.queue].data);
    if (reserve(call.call.queue, bound.scratch)) bound = bind(call, input, output, scratch_[call.call.queue].data);
    if (!bound.before.empty()) links_->copy(bound.before, stream);
    if (!bound.sums.empty()) links_->reduce({call.call.type, ReduceOp::sum}, bound.sums, stream);
    links_->run(call.communicator, call.call, bound.calls, stream);
    if (!bound.after.empty()) links_->copy(bound.after, stream);
  }

  bool needs_rehearsal() const override { return links_->needs_rehearsal(); }
  bool can_be_recorded() const override { return links_->can_be_recorded(); }
  std::string failure() override { return links_->failure(); }
  void abort(const std::string& why) override { links_->abort(why); }

 private:
  struct Call {
    PreparedCall call;
    std::int64_t member = 0;
    NcclGroup group;
    std::vector<int> peers;            // of each member: its number in the communicator
    WireForm form;                     // of the library's own collectives
    std::optional<RankRounds> rounds;  // of programs
    std::int64_t communicator = -1;
    std::vector<Segment> input, output;  // until connected
  };

  static WireCalls bind(const Call& call, std::span<const Segment> input, std::span<const Segment> output,
                        std::byte* scratch) {
    return bind_calls(call.call, call.member, call.form, call.peers, input, output, scratch);
  }
  static BoundRounds bind_to_rounds(const Call& call, std::span<const Segment> input, std::span<const Segment> output,
                                    std::byte* scratch) {
    return bind_rounds(call.call, call.member, *call.rounds, call.peers, input, output, scratch);
  }
  static std::int64_t scratch_of(const Call& call) {
    return call.rounds ? bind_to_rounds(call, call.input, call.output, nullptr).scratch
                       : bind(call, call.input, call.output, nullptr).scratch;
  }

  void start_rounds(const Call& call, std::span<const Segment> input, std::span<const Segment> output, void* stream) {
    BoundRounds bound = bind_to_rounds(call, input, output, scratch_[call.call.queue].data);
    if (reserve(call.call.queue, bound.scratch)) {
      bound = bind_to_rounds(call, input, output, scratch_[call.call.queue].data);
    }
    const auto reduce = [&](std::span<const DeviceSum> sums, ReduceOp op, std::int64_t divisor) {
      if (!sums.empty()) links_->reduce({call.call.type, op, divisor}, sums, stream);
    };
    const auto copy = [&](std::span<const DeviceCopy> copies) {
      if (!copies.empty()) links_->copy(copies, stream);
    };
    reduce(bound.accumulated, ReduceOp::sum, 1);
    for (const RoundCalls& round : bound.rounds) {
      copy(round.before);
      links_->run(call.communicator, call.call, round.calls, stream);
      for (const DeviceWork& work : round.work) {
        copy(work.copies);
        reduce(work.sums, call.call.op, 1);
        reduce(work.last_sums, call.call.op, call.call.op == ReduceOp::average ? call.call.spec.ranks : 1);
      }
    }
  }

  // Queues are counted anew for each group: plans that number theirs otherwise find the communicators that are there.
  static void number_queues(std::span<Call> calls) {
    std::map<NcclGroup, std::set<std::int64_t>> queues;
    const auto of_any_queue = [](NcclGroup group) {
      group.queue = 0;
      return group;
    };
    for (const Call& each : calls) queues[of_any_queue(each.group)].insert(each.group.queue);
    for (Call& each : calls) {
      const std::set<std::int64_t>& all = queues.at(of_any_queue(each.group));
      each.group.queue = std::distance(all.begin(), all.find(each.group.queue));
    }
  }

  // All ranks see the same rounds, so they agree on which groups have a communicator already.
  void join(const std::vector<NcclGroup>& round, std::span<const Call> calls) {
    std::vector<NcclGroup> added;
    std::ranges::copy_if(round, std::back_inserter(added),
                         [&](const NcclGroup& group) { return made_.insert(group).second; });
    if (!added.empty()) split(added);
    for (const NcclGroup& group : round) {
      const auto has_messages = [&](const Call& each) { return each.group == group && needs_pairs(each.call); };
      if (!std::ranges::any_of(calls, has_messages) || !paired_.insert(group).second) continue;
      links_->connect_pairs(communicators_.at(group), static_cast<int>(group.members.size()));
    }
  }

  void split(const std::vector<NcclGroup>& groups) {
    const auto own = std::ranges::find_if(
        groups, [&](const NcclGroup& group) { return std::ranges::find(group.members, rank_) != group.members.end(); });
    if (own == groups.end()) {
      links_->split(-1, 0, 0, "");
      return;
    }
    const auto self = std::ranges::find(own->members, rank_);
    communicators_[*own] =
        links_->split(static_cast<int>(own - groups.begin()), static_cast<int>(self - own->members.begin()),
                      static_cast<int>(own->thread_blocks),
                      fmt::format("ranks {} on queue {}", fmt::join(own->members, ", "), own->queue));
  }

  // True where there is new memory: calls of the queue that are under way keep the old.
  bool reserve(std::int64_t queue, std::int64_t bytes) {
    Scratch& scratch = scratch_[queue];
    if (bytes <= scratch.bytes) return false;
    scratch = {links_->allocate(bytes), bytes};
    return true;
  }

  struct Scratch {
    std::byte* data = nullptr;
    std::int64_t bytes = 0;
  };
  std::int64_t rank_;
  std::unique_ptr<NcclLinks> links_;
  Exchange exchange_;
  std::vector<Call> calls_;
  std::size_t connected_ = 0;  // of them
  std::set<NcclGroup> made_;   // of all ranks: those that have a communicator
  std::set<NcclGroup> paired_;
  std::map<NcclGroup, std::int64_t> communicators_;  // of this rank
  std::map<std::int64_t, Scratch> scratch_;          // by queue, whose calls run one after the other
};

// What a rank says first: the library's version, or why it cannot take part.
constexpr char kReady = '+', kCannot = '-';

}  // namespace

std::unique_ptr<StreamCollectives> collectives_over(const NcclOptions& options, Exchange exchange,
                                                    const std::function<std::unique_ptr<NcclLinks>()>& make_links) {
  std::unique_ptr<NcclLinks> links;
  std::string own, identity;
  try {
    links = make_links();
    own = kReady + links->version();
    if (options.rank == 0) identity = links->make_identity();
  } catch (const std::exception& error) {
    own = kCannot + std::string(error.what());
  }
  const std::vector<std::string> all = exchange(own);
  WEFT_CHECK(std::ssize(all) == options.ranks);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].front() == kCannot) fail("rank {}: {}", rank, all[rank].substr(1));
    if (all[rank] != all[0])
      fail("rank {} has NCCL {}, but rank 0 has {}", rank, all[rank].substr(1), all[0].substr(1));
  }
  links->join(exchange(identity).front());
  return std::make_unique<NcclCollectives>(options.rank, std::move(links), std::move(exchange));
}

}  // namespace weft
