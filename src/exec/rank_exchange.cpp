#include "exec/rank_exchange.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/error.hpp"
#include "collective/algorithms.hpp"
#include "collective/piece_sizes.hpp"

namespace weft {
namespace {

constexpr double kFixedPoint = 1 << 24;
constexpr int kRoundTrips = 16;

std::vector<std::int64_t> everybody(const Communicator& communicator) {
  std::vector<std::int64_t> ranks(communicator.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

PreparedCall call_of(const ProgramRequest& request, std::vector<std::int64_t> members, std::int64_t queue,
                     const char* label) {
  PreparedCall call;
  call.program = std::make_shared<const Program>(make_program(request));
  call.spec = call.program->spec;
  call.type = ElementType::i64;
  call.members = std::move(members);
  call.queue = queue;
  call.label = label;
  return call;
}

Communicator::Prepared& prepare_even(Communicator& communicator, const ProgramRequest& request, std::int64_t elements,
                                     std::vector<std::int64_t> members, std::int64_t queue, const char* label) {
  PreparedCall call = call_of(request, std::move(members), queue, label);
  call.sizes = even_sizes(call.spec, elements);
  return communicator.prepare(std::move(call));
}

void run_now(Communicator& communicator, Communicator::Prepared& call, const void* input, void* output) {
  communicator.wait(communicator.start(call, input, output));
}

}  // namespace

SharedSum::SharedSum(Communicator& communicator)
    : communicator_(communicator),
      call_(&prepare_even(communicator,
                          {.algorithm = Algorithm::recursive_doubling,
                           .kind = Collective::all_reduce,
                           .ranks = communicator.size(),
                           .in_place = true},
                          std::ssize(values_), everybody(communicator), kLossQueue, "loss")) {}

void SharedSum::start(double own, const Counts& counts) {
  WEFT_CHECK(!under_way_);
  // The sum over all ranks must fit. Training that has diverged this far shows as a loss that stays where it is.
  const double most = static_cast<double>(std::int64_t{1} << 62) / static_cast<double>(communicator_.size());
  values_.front() = std::llround(std::clamp(own * kFixedPoint, -most, most));
  std::ranges::copy(counts, values_.begin() + 1);
  handle_ = communicator_.start(*call_, nullptr, values_.data());
  under_way_ = true;
}

double SharedSum::take() {
  communicator_.wait(handle_);
  under_way_ = false;
  std::copy(values_.begin() + 1, values_.end(), counts_.begin());
  return static_cast<double>(values_.front()) / kFixedPoint;
}

void meet(Communicator& communicator) {
  auto& call = prepare_even(communicator,
                            {.algorithm = Algorithm::recursive_doubling,
                             .kind = Collective::barrier,
                             .ranks = communicator.size(),
                             .in_place = true},
                            0, everybody(communicator), kExchangeQueue, "barrier");
  run_now(communicator, call, nullptr, nullptr);
}

std::vector<std::vector<std::int64_t>> gather_numbers(Communicator& communicator, std::span<const std::int64_t> own,
                                                      const std::vector<std::int64_t>& counts) {
  PreparedCall call = call_of(
      {.algorithm = Algorithm::direct, .kind = Collective::gather, .ranks = communicator.size(), .in_place = false},
      everybody(communicator), kExchangeQueue, "measurements");
  call.sizes = sliced_sizes(call.spec, counts);
  std::vector<std::int64_t> all;
  const bool root = communicator.rank() == 0;
  if (root) all.resize(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  run_now(communicator, communicator.prepare(std::move(call)), own.data(), all.data());
  std::vector<std::vector<std::int64_t>> by_rank;
  if (!root) return by_rank;
  auto begin = all.begin();
  for (const std::int64_t count : counts) {
    by_rank.emplace_back(begin, begin + count);
    begin += count;
  }
  return by_rank;
}

std::string text_of_rank_0(Communicator& communicator, const std::string& text) {
  const auto broadcast = [&](std::int64_t* data, std::int64_t count) {
    auto& call = prepare_even(
        communicator,
        {.algorithm = Algorithm::direct, .kind = Collective::broadcast, .ranks = communicator.size(), .in_place = true},
        count, everybody(communicator), kExchangeQueue, "rank 0's word");
    run_now(communicator, call, nullptr, data);
  };
  std::int64_t length = std::ssize(text);
  broadcast(&length, 1);
  std::vector<std::int64_t> words(length / 8 + 1, 0);
  if (communicator.rank() == 0) std::memcpy(words.data(), text.data(), text.size());
  broadcast(words.data(), std::ssize(words));
  return {reinterpret_cast<const char*>(words.data()), static_cast<std::size_t>(length)};
}

std::vector<std::string> texts_of_all(Communicator& communicator, const std::string& text) {
  const auto all_gather = [&](const std::vector<std::int64_t>& own, const std::vector<std::int64_t>& counts) {
    PreparedCall call = call_of({.algorithm = Algorithm::direct,
                                 .kind = Collective::all_gather,
                                 .ranks = communicator.size(),
                                 .in_place = false},
                                everybody(communicator), kExchangeQueue, "words of all ranks");
    call.sizes = sliced_sizes(call.spec, counts);
    std::vector<std::int64_t> all(
        static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0})));
    run_now(communicator, communicator.prepare(std::move(call)), own.data(), all.data());
    return all;
  };
  const std::vector<std::int64_t> one_each(communicator.size(), 1);
  const std::vector<std::int64_t> lengths = all_gather({std::ssize(text)}, one_each);
  std::vector<std::int64_t> counts;
  for (const std::int64_t length : lengths) counts.push_back(length / 8 + 1);
  std::vector<std::int64_t> own(text.size() / 8 + 1, 0);
  std::memcpy(own.data(), text.data(), text.size());
  const std::vector<std::int64_t> all = all_gather(own, counts);
  std::vector<std::string> texts;
  const std::int64_t* begin = all.data();
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    texts.emplace_back(reinterpret_cast<const char*>(begin), static_cast<std::size_t>(lengths[rank]));
    begin += counts[rank];
  }
  return texts;
}

std::int64_t steady_nanos() {
  return std::chrono::nanoseconds(Transport::Clock::now().time_since_epoch()).count();
}

std::vector<std::int64_t> clock_offsets(Communicator& communicator, const ClockReader& now) {
  std::vector<std::int64_t> offsets(communicator.size(), 0);
  for (std::int64_t other = 1; other < communicator.size(); ++other) {
    if (communicator.rank() != 0 && communicator.rank() != other) continue;
    const auto message = [&](std::int64_t root) -> Communicator::Prepared& {
      return prepare_even(
          communicator,
          {.algorithm = Algorithm::direct, .kind = Collective::send_recv, .ranks = 2, .root = root, .in_place = true},
          1, {0, other}, kExchangeQueue, "clock");
    };
    Communicator::Prepared &ask = message(0), &answer = message(1);
    std::int64_t shortest = INT64_MAX;
    for (int round = 0; round < kRoundTrips; ++round) {
      std::int64_t word = 0;
      const std::int64_t asked = now();
      run_now(communicator, ask, nullptr, &word);
      if (communicator.rank() == other) word = now();
      run_now(communicator, answer, nullptr, &word);
      const std::int64_t answered = now();
      if (communicator.rank() != 0 || answered - asked >= shortest) continue;
      shortest = answered - asked;
      offsets[other] = asked + shortest / 2 - word;
    }
  }
  return offsets;
}

}  // namespace weft
