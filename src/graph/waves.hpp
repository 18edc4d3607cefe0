// Orders of pipelines in waves that are not searched for: micro-batches go back and forth through the chunks of every
// stage, as Hanayo and DualPipeV have them, or enter at both ends.
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

// DualPipe (DeepSeek 2024): micro-batches enter at both ends of an even number of stages. A stage and its mirror image
// do the same with the directions exchanged, and both what a stage of DualPipeV does on half as many stages.
PipelineOrders dual_pipe_both_ways(const PipelineShape& shape, bool paired);

}  // namespace weft
