// Recordings as CUDA graphs. Streams are captured together: all of them branch off the first one, and join it again at
// the end.
//
// An event that is recorded in a graph becomes a node of it, so it has a time, and other graphs can wait for it. What
// waits for it in the same graph needs an edge instead, which a second event beside it makes; that one leaves no node.
#pragma once

#include <deque>
#include <vector>

#include "kernels/cuda/context.hpp"

namespace weft::cuda {

class Recorder final : public CallRecorder {
 public:
  explicit Recorder(Context& context) : context_(context) {}

  void begin(std::span<const StreamId> streams) override;
  RecordingId end() override;
  void abandon() override;
  std::size_t host_data_given() const override { return recordings_.back().data.places(); }
  void renew_host_data(RecordingId recording) override;
  void start(RecordingId recording, StreamId stream) override;
  void forget(RecordingId recording) override { recordings_[recording.index()].graph.reset(); }

  bool is_recording() const { return is_recording_; }
  // While it records: `event` is the caller's number `id`.
  void record(cudaEvent_t event, std::size_t id, cudaStream_t stream);
  void wait(cudaStream_t stream, cudaEvent_t event, std::size_t id);

 private:
  struct Destroy {
    void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
  };
  // The data stays where it is, and stays when the graph goes: what still runs reads it.
  struct Recording {
    RecordedData data;
    std::unique_ptr<CUgraphExec_st, Destroy> graph;
  };
  void set_recording(RecordedData* data);
  cudaGraph_t end_capture();

  Context& context_;
  std::deque<Recording> recordings_;
  std::vector<StreamId> streams_;  // of the recording under way
  std::vector<bool> recorded_;     // by event: in this recording
  std::deque<Event> edges_;        // by event
  std::deque<Event> joins_;        // by stream
  bool is_recording_ = false;
};

}  // namespace weft::cuda
