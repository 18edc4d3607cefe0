// The CSV files of torch.distributed.pipelining (docs/export.md): passes alone, or with messages between them.
#include "base/error.hpp"
#include "io/export/export_writers.hpp"
#include "io/pipeline_csv.hpp"

namespace weft {
namespace {

PipelineActions pipeline_of(ExportSheet& sheet) {
  const Layout& layout = sheet.layout();
  if (layout.pp == 1) fail("--to torch-pipeline: the plan has one pipeline stage, and no schedule");
  if (layout.has_slices()) fail("--to torch-pipeline: PyTorch's passes are of whole sequences, the plan's of slices");
  sheet.carries({Feature::pipeline, Feature::model_chunks, Feature::schedule});
  sheet.leaves_out(Feature::stage_layers, "the job cuts the model into stages; --to torchtitan names their modules");
  sheet.leaves_out(Feature::batches, "the job gives the schedule its micro-batches");
  sheet.leaves_out(Feature::woven_passes, "a pass is one action: it is listed where it ends");
  return passes_of(sheet.plan());
}

void write(ExportSheet& sheet, const PipelineActions& actions) {
  std::string text = write_pipeline_csv(actions);
  text.pop_back();  // the sheet ends the last line
  sheet.line(text);
}

}  // namespace

// PyTorch adds the reductions to passes alone, and refuses them there.
void write_torch_pipeline_passes(ExportSheet& sheet) {
  write(sheet, pipeline_of(sheet));
  sheet.leaves_out(Feature::messages_beside_compute, "PyTorch places the messages; --to torch-pipeline-comms does");
}

void write_torch_pipeline_messages(ExportSheet& sheet) {
  const auto actions = with_messages(with_reductions(pipeline_of(sheet)));
  WEFT_CHECK(actions.has_value());  // of a plan that was verified
  write(sheet, *actions);
  sheet.carries({Feature::messages_beside_compute});
  sheet.warn("a PyTorch whose schedules have no REDUCE_GRAD reduces by itself: take these cells out for it");
  if (sheet.layout().zero == 3) {
    sheet.warn("the schedule has no UNSHARD and RESHARD: FSDP gathers by itself");
  }
}

}  // namespace weft
