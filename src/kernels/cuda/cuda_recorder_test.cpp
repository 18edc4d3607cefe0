// Recorded calls, started with other host data every time, do what the CPU's kernels do when they are called with it.
#include <array>

#include "kernels/cuda/test_cuda.hpp"

namespace weft {
namespace {

class CudaRecorder : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (device_ == nullptr) return;
    ASSERT_NE(device_->recorder(), nullptr);
    main_ = device_->make_stream(StreamPriority::usual);
    side_ = device_->make_stream(StreamPriority::high);
    starts_ = {device_->make_stream(StreamPriority::usual), device_->make_stream(StreamPriority::usual)};
    device_->use(main_);
  }

  StreamId main_, side_;
  std::array<StreamId, 2> starts_;
};

// One of each kernel that is given host data, on memory that they change step by step.
class Steps {
 public:
  static constexpr std::int64_t kRows = 24, kColumns = 40, kTable = 30;
  explicit Steps(TestMemory& m)
      : table_(m.matrix(kTable, kColumns, 1)),
        positions_(m.matrix(6, kColumns, 2)),
        y_(m.matrix(kRows, kColumns, 3)),
        dropped_(m.matrix(kRows, kColumns, 4)),
        probabilities_(m.matrix32(kRows, kColumns, 5)),
        d_logits_(m.matrix32(kRows, kColumns, 6)),
        d_table_(m.matrix(kTable, kColumns, 7)),
        kept_(m.bytes(kRows * kColumns)),
        adam_{m.vector(100, 8), m.vector32(100, 9), m.vector32(100, 10), m.squares32(100, 11)},
        sgd_{m.vector(100, 12), m.vector32(100, 13), m.vector32(100, 14)} {}

  void call(Kernels& k, std::int64_t step) {
    std::vector<std::int64_t> tokens, rows;
    for (std::int64_t r = 0; r < kRows; ++r) {
      tokens.push_back(r * (step + 3) % (step % 2 == 0 ? 7 : 23));  // few distinct ones, then many
      rows.push_back(11 * r);
    }
    k.embedding(tokens, table_, 0, {positions_, kPlaces}, y_);
    k.dropout(y_, {0.3, static_cast<std::uint64_t>(100 + step), rows}, {}, kept_, dropped_);
    k.cross_entropy(dropped_, tokens, kColumns, probabilities_, loss);
    k.cross_entropy_input_grad(probabilities_, tokens, 0, 0.5, d_logits_);
    k.embedding_weight_grad(tokens, d_logits_, d_table_, 0, Into::overwrite);
    const AdamSettings adam{.learning_rate = 0.1 / static_cast<double>(step + 1)};
    k.adam(adam, step + 1, {}, adam_, adam_finite);
    k.sgd({.learning_rate = 0.01 * static_cast<double>(step + 1), .momentum = 0.9}, step + 1, {}, sgd_, sgd_finite);
  }
  std::vector<Matrix> results() const {
    return {dropped_, d_logits_, d_table_, as_matrix(adam_.weights), as_matrix(sgd_.weights)};
  }

  double loss = 0;
  bool adam_finite = false, sgd_finite = false;

 private:
  static constexpr std::array<std::int64_t, 4> kPlaces = {2, 0, 3, 5};
  Matrix table_, positions_, y_, dropped_, probabilities_, d_logits_, d_table_;
  KeptElements kept_;
  UpdatedParameter adam_, sgd_;
};

TEST_F(CudaRecorder, StartsTakeNewHostDataAndGiveNewResults) {
  TestMemory expected(nullptr, ElementType::fp32, false), actual(device_.get(), ElementType::fp32, false);
  Steps right(expected), found(actual);
  const std::unique_ptr<Kernels> oracle = make_kernels();
  right.call(*oracle, 0);
  found.call(device_->kernels(), 0);
  device_->kernels().synchronize();
  CallRecorder& recorder = *device_->recorder();
  recorder.begin(std::array{main_, side_});
  const std::uint64_t begin = device_->results_asked_for();
  found.call(device_->kernels(), 7);
  const ResultRange results{begin, device_->results_asked_for()};
  EXPECT_EQ(results.end - results.begin, 3U);  // the loss and two words on gradients
  EXPECT_GE(recorder.host_data_given(), 7U);
  const RecordingId recording = recorder.end();
  for (std::int64_t step = 1; step < 5; ++step) {
    SCOPED_TRACE(step);
    right.call(*oracle, step);
    recorder.renew_host_data(recording);
    found.call(device_->kernels(), step);
    recorder.start(recording, starts_.front());
    const std::vector<Matrix> a = found.results(), b = right.results();
    for (std::size_t i = 0; i < a.size(); ++i) {
      EXPECT_LE(relative_error(actual.values(a[i]), expected.values(b[i])), 1e-5) << "result " << i;
    }
    found.adam_finite = found.sgd_finite = false;
    device_->deliver(results);
    EXPECT_NEAR(found.loss, right.loss, 1e-5 * right.loss);
    EXPECT_TRUE(found.adam_finite && found.sgd_finite);
  }
  recorder.forget(recording);
}

// Two recordings take turns: each fills its own half from that of the other, which takes long, and begins when the
// other's event says so. Without the waits a half would be copied before it is filled.
TEST_F(CudaRecorder, RecordingsWaitForTheEventsOfEachOther) {
  constexpr std::int64_t kSize = 20'000'000;
  const Vector ones{{device_->allocate({4 * kSize}), ElementType::fp32}, kSize};
  device_->kernels().fill(ones, 1);
  std::array<Vector, 2> halves;
  std::array<EventId, 2> begun{}, filled{};
  std::array<RecordingId, 2> recordings{};
  for (std::size_t i = 0; i < 2; ++i) {
    halves[i] = {{device_->allocate({4 * kSize}), ElementType::fp32}, kSize};
    begun[i] = device_->make_event();
    filled[i] = device_->make_event();
  }
  device_->record(filled[1], main_);
  device_->kernels().synchronize();
  const auto row = [](const Vector& x) { return as_matrix(x); };
  CallRecorder& recorder = *device_->recorder();
  for (std::size_t i = 0; i < 2; ++i) {
    recorder.begin(std::array{main_, side_});
    device_->record(begun[i], main_);
    device_->wait(side_, filled[1 - i]);
    device_->use(side_);
    for (int again = 0; again < 5; ++again) device_->kernels().add(row(halves[1 - i]), row(ones), row(halves[i]));
    device_->record(filled[i], side_);
    recordings[i] = recorder.end();
  }
  constexpr int kStarts = 6;
  std::vector<EventId> ends;
  for (int n = 0; n < kStarts; ++n) {
    const auto i = static_cast<std::size_t>(n % 2);
    recorder.renew_host_data(recordings[i]);
    recorder.start(recordings[i], starts_[i]);
    device_->record(ends.emplace_back(device_->make_event()), starts_[i]);
  }
  std::vector<std::byte> last(4);
  device_->copy_out(halves[(kStarts - 1) % 2].slice(kSize - 1, kSize).data.address, last);
  float value = 0;
  std::memcpy(&value, last.data(), sizeof value);
  EXPECT_EQ(value, kStarts);
  ASSERT_TRUE(device_->is_over(ends.back()));
  EXPECT_GT(device_->time_of(filled[1]), device_->time_of(filled[0]));
  EXPECT_GE(device_->time_of(ends.back()), device_->time_of(filled[1]));
  EXPECT_GE(device_->time_of(filled[1]), device_->time_of(begun[1]));
}

TEST_F(CudaRecorder, AnAbandonedRecordingLeavesTheStreamsAsTheyWere) {
  const Vector x{{device_->allocate({400}), ElementType::fp32}, 100};
  CallRecorder& recorder = *device_->recorder();
  recorder.begin(std::array{main_, side_});
  device_->kernels().fill(x, 3);
  recorder.abandon();
  device_->kernels().fill(x, 5);
  std::vector<std::byte> first(4);
  device_->copy_out(x.data.address, first);
  float value = 0;
  std::memcpy(&value, first.data(), sizeof value);
  EXPECT_EQ(value, 5);
}

}  // namespace
}  // namespace weft
