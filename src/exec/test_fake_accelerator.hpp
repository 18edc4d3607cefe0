// An accelerator for tests on any machine: its streams are lists of calls that it carries out in an order of its own,
// as far as events let it, and no sooner than somebody asks for an end. Who forgets an event, reads a result before it
// is delivered, or relies on memory of the host that a call has returned from, trains something else. Recordings keep
// the arguments of their calls: who gives a start no new host data trains on the old.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "base/error.hpp"
#include "exec/rank_exchange.hpp"
#include "exec/test_deferred_kernels.hpp"
#include "kernels/accelerator.hpp"

namespace weft::test {

class FakeAccelerator final : public Accelerator {
 public:
  // Returns whether it is done; asked again until then.
  using Task = std::function<bool()>;
  // Makes it when the call is enqueued: at once, or at every start of a recording.
  using MakeTask = std::function<Task()>;

  explicit FakeAccelerator(unsigned seed) : random_(seed), kernels_(*this, make_kernels()) {}

  Kernels& kernels() override { return kernels_; }
  void use(StreamId stream) override { current_ = stream; }

  std::byte* allocate(Bytes size) override {
    memory_.push_back(std::make_unique<std::byte[]>(static_cast<std::size_t>(size.value) + kAlignment));
    const auto at = reinterpret_cast<std::uintptr_t>(memory_.back().get());
    return memory_.back().get() + (kAlignment - at % kAlignment) % kAlignment;
  }
  void release(std::byte*) override {}  // what is under way still uses it
  void copy_in(std::span<const std::byte> host, std::byte* device) override {
    end_all();
    std::ranges::copy(host, device);
  }
  void copy_out(const std::byte* device, std::span<std::byte> host) override {
    end_all();
    std::copy_n(device, host.size(), host.begin());
  }
  void clear(StreamId stream, std::byte* device, Bytes size) override {
    call(stream, [=] { return [=] { return std::fill_n(device, size.value, std::byte{0}), true; }; });
  }

  StreamId make_stream(StreamPriority) override {
    streams_.push_back({this, make_id<StreamId>(streams_.size()), {}});
    return make_id<StreamId>(streams_.size() - 1);
  }
  EventId make_event() override {
    events_.emplace_back();
    return make_id<EventId>(events_.size() - 1);
  }
  void record(EventId event, StreamId stream) override {
    if (!broken_.empty()) throw RunFailed(broken_);
    call(stream, [this, event] {
      const std::int64_t number = ++events_[event.index()].recorded;
      return [this, event, number] {
        events_[event.index()].over = number;
        events_[event.index()].time = steady_nanos();
        return true;
      };
    });
  }
  void wait(StreamId stream, EventId event) override {
    call(stream, [this, event] {
      const std::int64_t number = events_[event.index()].recorded;
      return [this, event, number] { return events_[event.index()].over >= number; };
    });
  }
  bool is_over(EventId event) override {
    const Event& asked = events_[event.index()];
    for (int call = 0; call < kCallsPerLook && asked.over < asked.recorded; ++call) {
      if (!advance()) break;
    }
    return asked.over == asked.recorded;
  }
  std::int64_t time_of(EventId event) override { return events_[event.index()].time; }

  std::uint64_t results_asked_for() const override { return results_.size(); }
  void deliver(ResultRange range) override {
    for (std::uint64_t i = range.begin; i < range.end; ++i) results_[i]();
  }
  CallRecorder* recorder() override { return &recorder_; }
  void* native(StreamId stream) override { return &streams_[stream.index()]; }
  std::string in_words() const override { return "a list of calls"; }

  // Of native().
  static void call_in(void* stream, MakeTask make) {
    const Stream& own = *static_cast<Stream*>(stream);
    own.owner->call(own.id, std::move(make));
  }
  std::int64_t starts() const { return recorder_.starts; }
  void refuse_recordings() { recorder_.refuses = true; }
  // From now on it fails, as GPUs do whose memory ended with another process.
  void break_with(std::string why) { broken_ = std::move(why); }
  // Calls end before they return, as far as events let them: the device always waits for the host.
  void work_at_once() { works_at_once_ = true; }

 private:
  std::string broken_;
  static constexpr std::uintptr_t kAlignment = 4096;
  static constexpr int kCallsPerLook = 64;
  struct Event {
    std::int64_t recorded = 0, over = 0, time = 0;
  };
  struct Stream {
    FakeAccelerator* owner;
    StreamId id;
    std::deque<Task> tasks;
  };
  struct Recording {
    std::vector<std::pair<StreamId, MakeTask>> calls;
    std::vector<std::shared_ptr<void>> host_data;
    bool exists = true;
  };

  class Recorder final : public CallRecorder {
   public:
    explicit Recorder(FakeAccelerator& owner) : owner_(owner) {}
    void begin(std::span<const StreamId> streams) override {
      WEFT_CHECK(recorded == nullptr && renewed == nullptr);
      streams_.assign(streams.begin(), streams.end());
      recorded = &recordings_.emplace_back();
    }
    RecordingId end() override {
      if (refuses) throw RunFailed("a list of calls too long");
      recorded = nullptr;
      return make_id<RecordingId>(recordings_.size() - 1);
    }
    void abandon() override { recorded = nullptr; }
    std::size_t host_data_given() const override { return recorded->host_data.size(); }
    void renew_host_data(RecordingId recording) override {
      renewed = &recordings_[recording.index()];
      next = 0;
    }
    void start(RecordingId recording, StreamId stream) override {
      WEFT_CHECK(renewed == &recordings_[recording.index()] && renewed->exists && next == renewed->host_data.size());
      ++starts;
      owner_.start(*std::exchange(renewed, nullptr), stream);
    }
    void forget(RecordingId recording) override { recordings_[recording.index()].exists = false; }

    void add(StreamId stream, MakeTask make) {
      WEFT_CHECK(std::ranges::find(streams_, stream) != streams_.end());
      recorded->calls.emplace_back(stream, std::move(make));
    }

    Recording *recorded = nullptr, *renewed = nullptr;  // under way
    std::size_t next = 0;                               // of its host data
    std::int64_t starts = 0;
    bool refuses = false;

   private:
    FakeAccelerator& owner_;
    std::deque<Recording> recordings_;
    std::vector<StreamId> streams_;
  };

  class StreamKernels final : public DeferredKernels {
   public:
    StreamKernels(FakeAccelerator& owner, std::unique_ptr<Kernels> inner)
        : DeferredKernels(std::move(inner)), owner_(owner) {}
    void synchronize() override {
      owner_.end_all();
      owner_.deliver({0, owner_.results_.size()});
    }
    void embedding(Tokens tokens, const Matrix& table, std::int64_t first, const LearnedPositions& positions,
                   const Matrix& y) override {
      later([=, this, kept = host_data(copy_of(tokens))] { inner_->embedding(*kept, table, first, positions, y); });
    }
    void embedding_weight_grad(Tokens tokens, const Matrix& dy, const Matrix& dtable, std::int64_t first,
                               Into into) override {
      later([=, this, kept = host_data(copy_of(tokens))] {
        inner_->embedding_weight_grad(*kept, dy, dtable, first, into);
      });
    }
    void dropout(const Matrix& x, const DropoutDraw& draw, const Matrix& residual, KeptElements kept,
                 const Matrix& y) override {
      later([=, this, drawn = host_data(draw)] { inner_->dropout(x, *drawn, residual, kept, y); });
    }
    void attention(const AttentionShape& shape, const Matrix& q, const Matrix& k, const Matrix& v,
                   const Matrix& context, const AttentionSaved& saved, const Matrix& shared_key) override {
      if (shape.dropout.rate == 0) return DeferredKernels::attention(shape, q, k, v, context, saved, shared_key);
      later([=, this, drawn = host_data(shape)] { inner_->attention(*drawn, q, k, v, context, saved, shared_key); });
    }
    void attention_input_grad(const AttentionShape& shape, const Matrix& q, const Matrix& k, const Matrix& v,
                              const Matrix& context, const AttentionSaved& saved, const Matrix& d_context,
                              const Matrix& dq, const Matrix& dk, const Matrix& dv, Into into_keys,
                              const Matrix& shared_key, const Matrix& d_shared_key) override {
      const auto call = [=, this](const AttentionShape& drawn) {
        inner_->attention_input_grad(drawn, q, k, v, context, saved, d_context, dq, dk, dv, into_keys, shared_key,
                                     d_shared_key);
      };
      if (shape.dropout.rate == 0) return later([=] { call(shape); });
      later([=, drawn = host_data(shape)] { call(*drawn); });
    }
    void cross_entropy(const Matrix& logits, Tokens targets, std::int64_t vocab, const Matrix& probabilities,
                       double& loss) override {
      later([=, this, kept = host_data(copy_of(targets)), slot = result(loss)] {
        inner_->cross_entropy(logits, *kept, vocab, probabilities, *slot);
      });
    }
    void cross_entropy_part(const Matrix& logits, Tokens targets, VocabularyPart part, const LossPart& out) override {
      later([=, this, kept = host_data(copy_of(targets))] { inner_->cross_entropy_part(logits, *kept, part, out); });
    }
    void cross_entropy_of_parts(const Matrix& logits, VocabularyPart part, std::span<const LossPart> parts,
                                const Matrix& probabilities, double& loss) override {
      later([=, this, slot = result(loss)] {
        inner_->cross_entropy_of_parts(logits, part, parts, probabilities, *slot);
      });
    }
    void cross_entropy_input_grad(const Matrix& probabilities, Tokens targets, std::int64_t first, double scale,
                                  const Matrix& d_logits) override {
      later([=, this, kept = host_data(copy_of(targets))] {
        inner_->cross_entropy_input_grad(probabilities, *kept, first, scale, d_logits);
      });
    }
    void adam(const AdamSettings& settings, std::int64_t step, const GradientClip& clip,
              const UpdatedParameter& parameter, bool& finite) override {
      later([=, this, of_step = host_data(std::pair(settings, step)), slot = result(finite)] {
        inner_->adam(of_step->first, of_step->second, clip, parameter, *slot);
      });
    }
    void sgd(const SgdSettings& settings, std::int64_t step, const GradientClip& clip,
             const UpdatedParameter& parameter, bool& finite) override {
      later([=, this, of_step = host_data(std::pair(settings, step)), slot = result(finite)] {
        inner_->sgd(of_step->first, of_step->second, clip, parameter, *slot);
      });
    }
    void all_finite(const Vector& x, bool& finite) override {
      later([=, this, slot = result(finite)] { inner_->all_finite(x, *slot); });
    }
    void encode(const Vector& values, const Vector& errors, const EncodingDraw& draw, const EncodedShards& encoded,
                EncodedSquares* squares) override {
      const auto drawn = host_data(draw);
      const auto slot = squares != nullptr ? result(*squares) : nullptr;
      later([=, this] { inner_->encode(values, errors, *drawn, encoded, slot.get()); });
    }
    void invert_curvature(const Matrix& curvature, double keep, double damping, const Matrix& average,
                          const Matrix& inverse, bool& finite) override {
      later([=, this, slot = result(finite)] {
        inner_->invert_curvature(curvature, keep, damping, average, inverse, *slot);
      });
    }
    void make_orthonormal(const Matrix& factor, std::uint64_t seed) override {
      later([=, this, drawn = host_data(seed)] { inner_->make_orthonormal(factor, *drawn); });
    }
    void factor_product(const Matrix& left, const Matrix& right, std::int64_t ranks, const Matrix& gradient,
                        const Matrix& errors, EncodedSquares& squares) override {
      later([=, this, slot = result(squares)] { inner_->factor_product(left, right, ranks, gradient, errors, *slot); });
    }

   private:
    static std::vector<std::int64_t> copy_of(Tokens tokens) { return {tokens.begin(), tokens.end()}; }
    template <class Data>
    std::shared_ptr<Data> host_data(Data data) {
      Recorder& recorder = owner_.recorder_;
      if (recorder.renewed != nullptr) {
        const auto kept = std::static_pointer_cast<Data>(recorder.renewed->host_data.at(recorder.next++));
        *kept = std::move(data);
        return kept;
      }
      const auto kept = std::make_shared<Data>(std::move(data));
      if (recorder.recorded != nullptr) recorder.recorded->host_data.push_back(kept);
      return kept;
    }
    template <class Number>
    std::shared_ptr<Number> result(Number& wanted) {
      const auto slot = std::make_shared<Number>();
      if (owner_.recorder_.renewed == nullptr) owner_.results_.push_back([slot, &wanted] { wanted = *slot; });
      return slot;
    }
    void later(std::function<void()> kernel) override {
      if (owner_.recorder_.renewed != nullptr) return;
      WEFT_CHECK(owner_.current_.valid());
      owner_.call(owner_.current_, [kernel = std::move(kernel)] { return [kernel] { return kernel(), true; }; });
    }

    FakeAccelerator& owner_;
  };

  void call(StreamId stream, MakeTask make) {
    if (recorder_.recorded != nullptr) return recorder_.add(stream, std::move(make));
    streams_[stream.index()].tasks.push_back(make());
    while (works_at_once_ && advance()) continue;
  }

  // Streams of a recording run side by side with all others; what is before it in `stream` must be over, and what is
  // behind it there waits for all of them.
  void start(const Recording& recording, StreamId stream) {
    struct State {
      bool begun = false;
      std::size_t left = 0;
    };
    const auto state = std::make_shared<State>();
    std::map<StreamId, std::deque<Task>> tasks;
    for (const auto& [of, make] : recording.calls) tasks[of].push_back(make());
    state->left = tasks.size();
    for (auto& [of, own] : tasks) {
      own.push_front([state] { return state->begun; });
      own.push_back([state] { return --state->left, true; });
      recorded_streams_.push_back(std::move(own));
    }
    streams_[stream.index()].tasks.push_back([state] { return state->begun = true; });
    streams_[stream.index()].tasks.push_back([state] { return state->left == 0; });
  }

  std::vector<std::deque<Task>*> streams_with_work() {
    std::erase_if(recorded_streams_, [](const std::deque<Task>& tasks) { return tasks.empty(); });
    std::vector<std::deque<Task>*> with_work;
    for (Stream& stream : streams_) {
      if (!stream.tasks.empty()) with_work.push_back(&stream.tasks);
    }
    for (std::deque<Task>& tasks : recorded_streams_) with_work.push_back(&tasks);
    return with_work;
  }
  // One call of a stream that is drawn, where it can run.
  bool advance() {
    std::vector<std::deque<Task>*> with_work = streams_with_work();
    std::shuffle(with_work.begin(), with_work.end(), random_);
    for (std::deque<Task>* stream : with_work) {
      if (!stream->front()()) continue;
      stream->pop_front();
      return true;
    }
    return false;
  }
  void end_all() {
    while (!streams_with_work().empty()) advance();
  }

  std::mt19937 random_;
  StreamKernels kernels_;
  StreamId current_;
  std::deque<Stream> streams_;                    // a deque keeps the addresses that native() gives
  std::list<std::deque<Task>> recorded_streams_;  // of recordings that were started
  Recorder recorder_{*this};
  bool works_at_once_ = false;
  std::vector<Event> events_;
  std::vector<std::function<void()>> results_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

}  // namespace weft::test
