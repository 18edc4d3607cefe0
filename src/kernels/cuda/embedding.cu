// Rows of tables by token and position. Which rows add to which row of a table is sorted on the host, which holds the
// tokens anyway, so each sum has one owner and one order.
#include <vector>

#include "kernels/cuda/cuda_kernels.hpp"
#include "kernels/cuda/launch.cuh"

namespace weft::cuda {
namespace {

constexpr int kWidth = 32, kLanes = 8;  // chunks of columns, and rows at a time, of a block
constexpr std::int32_t kNoTarget = -1;

// Rows by the row of the table that they add to: those of sum s are order[begins[s]..begins[s + 1]).
struct RowGroups {
  std::vector<std::int32_t> order, begins, targets;
};
// target(row): a row of the table, or a number outside of it.
template <class Target>
RowGroups group_rows(std::int64_t rows, std::int64_t table_rows, const Target& target) {
  std::vector<std::int32_t> place(static_cast<std::size_t>(table_rows) + 1);
  for (std::int64_t r = 0; r < rows; ++r)
    if (const std::int64_t t = target(r); t >= 0 && t < table_rows) ++place[static_cast<std::size_t>(t) + 1];
  RowGroups groups;
  for (std::size_t t = 0; t < static_cast<std::size_t>(table_rows); ++t) {
    if (place[t + 1] > 0) {
      groups.begins.push_back(place[t]);
      groups.targets.push_back(static_cast<std::int32_t>(t));
    }
    place[t + 1] += place[t];
  }
  groups.begins.push_back(place.back());
  groups.order.resize(static_cast<std::size_t>(place.back()));
  for (std::int64_t r = 0; r < rows; ++r)
    if (const std::int64_t t = target(r); t >= 0 && t < table_rows)
      groups.order[static_cast<std::size_t>(place[static_cast<std::size_t>(t)]++)] = static_cast<std::int32_t>(r);
  return groups;
}

__global__ void __launch_bounds__(kWidth* kLanes)
    group_sums_kernel(Operand rows, Operand table, std::int64_t columns, const std::int32_t* order,
                      const std::int32_t* begins, const std::int32_t* targets, bool adds) {
  __shared__ Values of_lanes[kLanes][kWidth];
  if (targets[blockIdx.x] == kNoTarget) return;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * kWidth + threadIdx.x) * kChunk;
  const int count = static_cast<int>(max(min(static_cast<std::int64_t>(kChunk), columns - column), std::int64_t{0}));
  Values sum = {};
  for (std::int32_t i = begins[blockIdx.x] + static_cast<std::int32_t>(threadIdx.y); i < begins[blockIdx.x + 1];
       i += kLanes) {
    const Values a = load(rows, order[i], column, count);
#pragma unroll
    for (int j = 0; j < kChunk; ++j) sum.v[j] += a.v[j];
  }
  of_lanes[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0) return;
  for (int lane = 1; lane < kLanes; ++lane)
#pragma unroll
    for (int j = 0; j < kChunk; ++j) sum.v[j] += of_lanes[lane][threadIdx.x].v[j];
  const std::int64_t target = targets[blockIdx.x];
  if (adds) {
    const Values old = load(table, target, column, count);
#pragma unroll
    for (int j = 0; j < kChunk; ++j) sum.v[j] += old.v[j];
  }
  store(table, target, column, sum, count);
}

// A recording is started with other tokens, for which it must have room: as many groups as there can be, the last of
// them empty.
void fill_up(RowGroups& groups, std::int64_t rows, std::int64_t table_rows) {
  const auto most = static_cast<std::size_t>(std::min(rows, table_rows));
  groups.order.resize(static_cast<std::size_t>(rows), 0);
  groups.begins.resize(most + 1, groups.begins.back());
  groups.targets.resize(most, kNoTarget);
}

void add_groups(Context& context, const Matrix& rows, const Matrix& table, RowGroups groups, Into into) {
  if (context.records()) fill_up(groups, rows.rows, table.rows);
  const auto staged = [&](const std::vector<std::int32_t>& list) {
    return context.stage(std::span<const std::int32_t>(list));
  };
  const std::int32_t *const order = staged(groups.order), *const begins = staged(groups.begins),
                            *const targets = staged(groups.targets);
  if (context.only_takes_data()) return;
  if (into == Into::overwrite) context.clear(table);
  if (groups.targets.empty() || rows.columns == 0) return;
  const dim3 blocks(static_cast<unsigned>(groups.targets.size()),
                    static_cast<unsigned>(ceil_div(rows.columns, kWidth * kChunk)));
  group_sums_kernel<<<blocks, dim3(kWidth, kLanes), 0, context.current_stream()>>>(
      operand(rows), operand(table), rows.columns, order, begins, targets, into == Into::add);
  check(cudaGetLastError(), "summing gradients of rows");
}

}  // namespace

void CudaKernels::embedding(Tokens tokens, const Matrix& table, std::int64_t first_token,
                            const LearnedPositions& positions, const Matrix& y) {
  const Operand of_tokens = operand(table), of_positions = operand(positions.table), out = operand(y);
  const std::int64_t rows = table.rows, length = std::ssize(positions.positions);
  const std::int64_t *const staged = context_.stage(tokens), *const places = context_.stage(positions.positions);
  if (context_.only_takes_data()) return;
  for_chunks(context_, {y.rows, y.columns}, [=] __device__(std::int64_t row, std::int64_t column, int count) {
    const std::int64_t index = staged[row] - first_token;
    Values sum = {};
    if (index >= 0 && index < rows) sum = load(of_tokens, index, column, count);
    if (of_positions.data != nullptr) {
      const Values a = load(of_positions, places[row % length], column, count);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) sum.v[i] += a.v[i];
    }
    store(out, row, column, sum, count);
  });
}

void CudaKernels::embedding_weight_grad(Tokens tokens, const Matrix& dy, const Matrix& dtable, std::int64_t first_token,
                                        Into into) {
  const auto target = [&](std::int64_t r) { return tokens[static_cast<std::size_t>(r)] - first_token; };
  add_groups(context_, dy, dtable, group_rows(dy.rows, dtable.rows, target), into);
}

void CudaKernels::positions_weight_grad(const Matrix& dy, const LearnedPositions& d_positions, Into into) {
  const std::span<const std::int64_t> positions = d_positions.positions;
  const auto target = [&](std::int64_t r) { return positions[static_cast<std::size_t>(r) % positions.size()]; };
  add_groups(context_, dy, d_positions.table, group_rows(dy.rows, d_positions.table.rows, target), into);
}

}  // namespace weft::cuda
