// Orders of pipelines in waves that are not searched for: micro-batches go back and forth through the chunks of every
// stage, as Hanayo and DualPipeV have them.
#pragma once

#include "graph/pipeline_run.hpp"

namespace weft {

// Hanayo (Liu et al. 2023): a stage has two chunks for every wave, backward is whole, and p micro-batches are under way
// on each of p stages. A gradient goes on as soon as it is there, then the forward that has come furthest.
PipelineOrders hanayo_waves(const PipelineShape& shape);

// DualPipeV, the half of DeepSeek's DualPipe that needs one copy of the parameters: two chunks a stage, forwards of one
// chunk beside backwards of the other (the order of PyTorch's ScheduleDualPipeV). A backward that is whole there is an
// input gradient with its weight gradient right behind it. `paired`: the forwards and input gradients that run side by
// side there form pairs.
PipelineOrders dual_pipe_waves(const PipelineShape& shape, bool paired);

}  // namespace weft
