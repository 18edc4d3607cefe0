#include "study/collective/collective_bench.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.hpp"
#include "calibrate/links/bench_ranks.hpp"
#include "calibrate/links/handoff_probe.hpp"
#include "calibrate/links/stream_probe.hpp"
#include "collective/lowered.hpp"
#include "comm/naive_collective.hpp"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

// Real TCP, measured at 200 Mbit: three streams into one host reach 0.95 (1 MiB) to 0.99 (4 MiB) of its link together.
constexpr double kTcpSharingLoss = 0.01;
constexpr Bytes kMinCongestingBytes{128 << 10};  // smaller buffers are through before a queue builds up
// With few short rounds, threads that wake up late would decide the median.
constexpr int kMinRounds = 7, kMaxRounds = 101;
constexpr Nanos kTimePerCandidate{600'000'000};
// The time of hosts is measured beside programs that take at most this long, including the rest before each.
constexpr Nanos kMaxTimeWithHostShare{10'000'000};
constexpr int kFirstProbes = 41;
// A rest lasts this many times what links need to save up their burst, because some traffic passes meanwhile.
constexpr double kRestFactor = 1.2;
constexpr Nanos kMaxRest{200'000'000};
constexpr double kMaxShareOfBurst = 0.95;
constexpr Bytes kUnlimitedBurst{1 << 30};  // the most that links may have
// The rate of one core that reduces, in bytes of the result.
constexpr Bandwidth kReduceRate{5e9};
// Between threads a message is a copy, after a wake-up between two cores.
constexpr MeasuredLink kMemory{10e9, {2'000}, {}};

struct Candidate {
  BenchRow row;
  Communicator::Prepared* prepared = nullptr;
  bool in_place = false;
  CollectiveSpec spec;
  RoundTimes times;                       // as the callers see them
  std::shared_ptr<NetworkTimes> network;  // where links are emulated
  RoundTimes network_times;
};

std::int64_t rounded_elements(const BenchOptions& options, Bytes size) {
  return size.value / size_of(options.type).value;
}

bool has_links(const Communicator& communicator, bool processes) {
  return processes && communicator.size() > 1 && !communicator.through_memory();
}

// The cluster by which programs are chosen: the emulated one, or what the links were measured to be.
Cluster cluster_for(const BenchOptions& options, std::int64_t ranks, const std::optional<MeasuredLink>& link) {
  if (options.cluster != nullptr) return *options.cluster;
  return Cluster(cluster_of(link.value_or(kMemory), ranks));
}

ProgramQuestion question_of(const BenchOptions& options, Collective kind, Bytes size, std::int64_t ranks) {
  return {kind, rounded_elements(options, size), size_of(options.type), 0, options.in_place, members_up_to(ranks)};
}

// After such a rest every program finds links in the same state.
Nanos rest_for(const MeasuredLink& link) {
  return std::min(kMaxRest, nanos_from_seconds(kRestFactor * static_cast<double>(link.burst.value) / link.goodput));
}

// `over_tcp`: between processes, not threads.
std::vector<ProgramChoice> chosen(const BenchOptions& options, Collective kind, Bytes size, const Cluster& cluster,
                                  std::int64_t ranks, bool over_tcp) {
  const ProgramQuestion question = question_of(options, kind, size, ranks);
  ProgramTimeOptions time;
  time.slowdown = options.slowdown;
  time.own_work = true;
  if (options.cluster == nullptr) time.reduce = kReduceRate;
  if (over_tcp && size >= kMinCongestingBytes) time.sharing_loss = kTcpSharingLoss;
  std::vector<ProgramChoice> choices;
  if (options.algorithms.empty()) {
    choices = rank_programs(question, cluster, time);
    if (choices.empty()) fail("--collective {}: no algorithm for {} ranks", name_of(kind), ranks);
    choices.resize(1);
  }
  for (const Algorithm algorithm : options.algorithms) {
    if (options.parts == 0) {
      if (const auto choice = best_parts(algorithm, question, cluster, time)) choices.push_back(*choice);
    } else if (const auto choice = with_parts(algorithm, options.parts, question, cluster, time)) {
      choices.push_back(*choice);
    }
  }
  return choices;
}

// The times by the links' clock are kept where links are emulated.
Candidate prepared_candidate(Communicator& communicator, const BenchOptions& options, BenchRow row,
                             std::shared_ptr<const Program> program) {
  Candidate candidate;
  candidate.in_place = program->in_place;
  candidate.spec = program->spec;
  PreparedCall call{program,
                    program->spec,
                    even_sizes(program->spec, rounded_elements(options, row.size)),
                    options.type,
                    options.op,
                    all_ranks(communicator.size()),
                    0,
                    ""};
  if (options.cluster != nullptr) {
    candidate.network = std::make_shared<NetworkTimes>();
    call.on_done = [times = candidate.network](auto began, auto ended) { times->add(began, ended); };
  }
  candidate.row = std::move(row);
  candidate.prepared = &communicator.prepare(std::move(call));
  return candidate;
}

Candidate candidate_of(Communicator& communicator, const BenchOptions& options, Bytes size,
                       const ProgramChoice& choice) {
  BenchRow row{choice.request.kind,  size, std::string(name_of(choice.request.algorithm)),
               choice.request.parts, {},   std::nullopt,
               choice.time,          0};
  row.program = choice.request;
  return prepared_candidate(communicator, options, std::move(row),
                            std::make_shared<const Program>(make_program(choice.request)));
}

// What the links of the cluster take for a program; between processes they are not known one by one.
std::optional<Nanos> time_on_links(const Program& program, const BenchOptions& options, Bytes size) {
  if (options.cluster == nullptr) return std::nullopt;
  ProgramTimeOptions time;
  time.slowdown = options.slowdown;
  time.own_work = true;
  const auto lowered = lower(program, run_symbolically(program),
                             even_sizes(program.spec, rounded_elements(options, size)), size_of(options.type));
  return program_time(lowered, *options.cluster, members_up_to(program.spec.ranks), time);
}

// The library's own call on the same data, cut into as few pieces as it has.
std::optional<Candidate> native_candidate(Communicator& communicator, const BenchOptions& options, Bytes size,
                                          Collective kind) {
  Candidate candidate;
  candidate.row = {kind, size, "native", 1, {}, std::nullopt, std::nullopt, 0};
  candidate.spec = {kind, communicator.size(), 0, is_divided(kind) ? communicator.size() : 1};
  try {
    PreparedCall call{nullptr,
                      candidate.spec,
                      even_sizes(candidate.spec, rounded_elements(options, size)),
                      options.type,
                      options.op,
                      all_ranks(communicator.size()),
                      0,
                      "native"};
    call.blocking = true;  // as the library's users call it
    candidate.prepared = &communicator.prepare(std::move(call));
  } catch (const Error&) {
    return std::nullopt;  // this transport has none
  }
  return candidate;
}

// The buffers of a rank, large enough for every candidate.
struct Buffers {
  std::vector<std::byte> input, output;
};

// The result is checked with the candidate's own cut: a coarser cut would expect the same bytes only if values depended
// on the place in the buffer alone.
void check(Communicator& communicator, const BenchOptions& options, Candidate& candidate, Bytes size,
           Buffers& buffers) {
  const std::int64_t rank = communicator.rank();
  const PieceSizes sizes = even_sizes(candidate.spec, rounded_elements(options, size));
  const std::vector<std::byte> input = input_bytes(candidate.spec, sizes, options.type, rank);
  const std::vector<std::byte> expected = expected_bytes(candidate.spec, sizes, options.type, options.op, rank);
  std::size_t input_begin = 0, output_begin = 0;
  buffers.output.assign(std::max({buffers.output.size(), expected.size(), input.size()}), std::byte{0xee});
  buffers.input.resize(std::max(buffers.input.size(), input.size()));
  std::copy(input.begin(), input.end(), buffers.input.begin());
  if (candidate.in_place && rank < candidate.spec.ranks) {
    const std::size_t element = size_of(options.type).value;
    for (std::int64_t slot = 0; slot < in_place_slot_of_input(candidate.spec, rank, 0); ++slot) {
      input_begin += static_cast<std::size_t>(sizes[slot]) * element;
    }
    for (std::int64_t slot = 0; slot < in_place_slot_of_output(candidate.spec, rank, 0); ++slot) {
      output_begin += static_cast<std::size_t>(sizes[slot]) * element;
    }
    std::copy(input.begin(), input.end(), buffers.output.begin() + static_cast<std::ptrdiff_t>(input_begin));
  }
  communicator.wait(communicator.start(*candidate.prepared, buffers.input.data(), buffers.output.data()));
  if (candidate.network != nullptr) candidate.network->take();
  if (std::memcmp(buffers.output.data() + output_begin, expected.data(), expected.size()) != 0) {
    throw RunFailed(fmt::format("rank {}: {} {} of {} bytes gives a wrong result", rank, candidate.row.name,
                                name_of(candidate.row.kind), size.value));
  }
}

void time_once(Communicator& communicator, BenchRanks& ranks, Candidate& candidate, Buffers& buffers) {
  if (candidate.network != nullptr) {
    ranks.run_at_once(*candidate.prepared, buffers.input.data(), buffers.output.data());
    const Clock::time_point told = Clock::now();
    const auto [began, ended] = candidate.network->take();
    candidate.network_times.add(began, ended);
    candidate.times.add(began, told);
    return;
  }
  ranks.begin_together();
  const Clock::time_point begin = Clock::now();
  communicator.wait(communicator.start(*candidate.prepared, buffers.input.data(), buffers.output.data()));
  candidate.times.add(begin, Clock::now());
}

Nanos since(Clock::time_point begin) {
  return {std::chrono::nanoseconds(Clock::now() - begin).count()};
}

// All ranks find the same. Emulated links take the same time every time.
int rounds_of(const BenchOptions& options, Nanos first) {
  if (options.repeat) return *options.repeat;
  if (options.cluster != nullptr) return kMinRounds;
  const std::int64_t fitting = kTimePerCandidate.value / std::max<std::int64_t>(1, first.value);
  return static_cast<int>(std::clamp<std::int64_t>(fitting, kMinRounds, kMaxRounds));
}

void bench_size(Communicator& communicator, BenchRanks& ranks, const BenchOptions& options, const Cluster& cluster,
                HandoffProbe* probe, Collective kind, Bytes size, BenchResult& result) {
  std::vector<Candidate> candidates;
  if (options.native && options.stand_ins == 0) {
    if (auto native = native_candidate(communicator, options, size, kind)) candidates.push_back(std::move(*native));
  }
  if (options.stand_ins == 0) {
    for (const ProgramChoice& choice : chosen(options, kind, size, cluster, communicator.size(), probe != nullptr)) {
      candidates.push_back(candidate_of(communicator, options, size, choice));
    }
  }
  for (const auto& [name, program] : options.programs) {
    if (program->spec.kind != kind) continue;
    BenchRow row{kind, size, name, 1, {}, std::nullopt, time_on_links(*program, options, size), 0};
    candidates.push_back(prepared_candidate(communicator, options, std::move(row), program));
  }
  if (candidates.empty()) return;
  Buffers buffers;
  for (Candidate& candidate : candidates) check(communicator, options, candidate, size, buffers);
  // Candidates run in turn, every second time in reverse order: disturbances affect all alike, and each finds the links
  // as often as the others in the state in which its neighbours left them. The first turn does not count.
  const auto time_all = [&](bool forth) {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      time_once(communicator, ranks, candidates[forth ? i : candidates.size() - 1 - i], buffers);
    }
  };
  const Clock::time_point begin = Clock::now();
  time_all(false);
  const Nanos first = ranks.slowest({since(begin)}).front();
  const int rounds = rounds_of(options, Nanos{first.value / std::ssize(candidates)});
  const bool hosts_matter = probe != nullptr && first < kMaxTimeWithHostShare * std::ssize(candidates);
  for (Candidate& candidate : candidates) {
    candidate.times.clear();
    candidate.network_times.clear();
  }
  for (int round = 0; round < rounds; ++round) {
    time_all(round % 2 == 0);
    if (hosts_matter) probe->time_once();
  }
  for (Candidate& candidate : candidates) {
    candidate.row.time = median(ranks.of_all(candidate.times));
    if (candidate.network != nullptr) candidate.row.link_time = median(ranks.of_all(candidate.network_times));
    candidate.row.bus_bandwidth = bus_bandwidth(kind, candidate.spec.ranks, size, candidate.row.time);
    result.rows.push_back(candidate.row);
  }
}

// Programs are chosen for links in use, as those of a step are, but predicted for idle links, as they are timed.
void predict(const BenchOptions& options, BenchResult& result) {
  for (BenchRow& row : result.rows) {
    if (!row.program) continue;
    const auto with = [&](const HostWork& host) {
      return time_over_tcp(row.program->algorithm, row.program->parts,
                           question_of(options, row.kind, row.size, result.ranks), *result.measured, host);
    };
    row.predicted = with(*result.host);
    HostWork on_any_link = *result.host;
    on_any_link.burst = kUnlimitedBurst;
    row.within_burst = seconds(with(on_any_link)) > kMaxShareOfBurst * seconds(*row.predicted);
  }
}

}  // namespace

double bus_bandwidth(Collective kind, std::int64_t ranks, Bytes size, Nanos time) {
  const auto n = static_cast<double>(ranks);
  double factor = ranks == 1 || kind == Collective::barrier ? 0 : 1;
  if (kind == Collective::all_reduce) factor = 2 * (n - 1) / n;
  if (is_divided(kind)) factor = (n - 1) / n;
  return static_cast<double>(size.value) * factor / seconds(std::max(time, Nanos{1}));
}

BenchResult run_bench(Communicator& communicator, const BenchOptions& options, bool processes) {
  BenchResult result;
  result.ranks = communicator.size() - options.stand_ins;
  BenchRanks ranks(communicator, processes, options.cluster != nullptr);
  std::optional<HandoffProbe> probe;
  if (has_links(communicator, processes)) {
    result.measured = measure_link(communicator, ranks);
    ranks.rest_at_least(rest_for(*result.measured));
    probe.emplace(communicator, ranks, *result.measured);
    for (int round = 0; round < kFirstProbes; ++round) probe->time_once();
    result.measured->latency = probe->result().latency;
  }
  if (options.cluster != nullptr) {
    result.link_bandwidth = options.cluster->links().back().bandwidth.bytes_per_second / options.slowdown;
  }
  if (result.measured) result.link_bandwidth = result.measured->goodput;
  const Cluster cluster = cluster_for(options, communicator.size(), result.measured);
  for (const Collective kind : options.kinds) {
    // A barrier moves no buffer.
    const std::vector<Bytes> sizes = kind == Collective::barrier ? std::vector{Bytes{0}} : options.sizes;
    for (const Bytes size : sizes) {
      bench_size(communicator, ranks, options, cluster, probe ? &*probe : nullptr, kind, size, result);
    }
  }
  if (probe) {
    result.host = probe->result();
    predict(options, result);
  }
  return result;
}

namespace {

// A product of square matrices that stays in a core's cache; the sum keeps it from being left out.
float multiply(const std::vector<float>& a, const std::vector<float>& b, std::vector<float>& c, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    float* const row = &c[i * n];
    std::fill(row, row + n, 0.0F);
    for (std::size_t k = 0; k < n; ++k) {
      const float scale = a[i * n + k];
      for (std::size_t j = 0; j < n; ++j) row[j] += scale * b[k * n + j];
    }
  }
  return std::accumulate(c.begin(), c.end(), 0.0F);
}

class MatrixWork {
 public:
  float run(std::int64_t products) {
    float sum = 0;
    for (std::int64_t i = 0; i < products; ++i) sum += multiply(a_, b_, c_, kSide);
    return sum;
  }

 private:
  static constexpr std::size_t kSide = 128;
  std::vector<float> a_ = std::vector<float>(kSide * kSide, 0.5F), b_ = a_, c_ = a_;
};

}  // namespace

OverlapResult run_overlap(Communicator& communicator, const BenchOptions& options, bool processes) {
  BenchRanks ranks(communicator, processes, options.cluster != nullptr);
  std::optional<MeasuredLink> link;
  if (has_links(communicator, processes)) link = measure_link(communicator, ranks);
  const Cluster cluster = cluster_for(options, communicator.size(), link);
  const Bytes size = options.sizes.front();
  const auto choices = chosen(options, Collective::all_reduce, size, cluster, communicator.size(), link.has_value());
  if (choices.empty()) fail("--algorithm: none of these has an all_reduce");
  Candidate candidate = candidate_of(communicator, options, size, choices.front());
  Buffers buffers;
  check(communicator, options, candidate, size, buffers);
  time_once(communicator, ranks, candidate, buffers);
  // There is a fifth more compute than communication, so that all of it could hide.
  MatrixWork work;
  volatile float sum = work.run(20);
  const Clock::time_point begin = Clock::now();
  sum = sum + work.run(200);
  const Nanos slowest = ranks.of_all(candidate.times).front();
  const Nanos product = ranks.slowest({since(begin)}).front();
  const std::int64_t products = std::max<std::int64_t>(1, slowest.value * 6 / 5 * 200 / product.value);
  std::vector<Nanos> compute, both;
  candidate.times.clear();
  for (int round = 0; round < options.repeat.value_or(kMinRounds); ++round) {
    time_once(communicator, ranks, candidate, buffers);
    ranks.barrier();
    const Clock::time_point alone = Clock::now();
    sum = sum + work.run(products);
    compute.push_back(since(alone));
    ranks.barrier();
    const Clock::time_point together = Clock::now();
    const auto handle = communicator.start(*candidate.prepared, buffers.input.data(), buffers.output.data());
    sum = sum + work.run(products);
    communicator.wait(handle);
    both.push_back(since(together));
    if (candidate.network != nullptr) candidate.network->take();
  }
  return {size, median(ranks.slowest(compute)), median(ranks.of_all(candidate.times)), median(ranks.slowest(both))};
}

}  // namespace weft
