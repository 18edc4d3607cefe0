#include "kernels/cuda/attention_kernels.hpp"
#include "kernels/cuda/launch.cuh"

namespace weft::cuda {
namespace {

// Chunks of a head may be read in words of 16 bytes only where every head begins at one.
Operand operand_of(const Heads& heads, std::int64_t part) {
  Operand x = operand(heads.matrix);
  x.aligned = x.aligned && heads.step % kChunk == 0 && part % kChunk == 0;
  return x;
}

__device__ void add_to(const Operand& x, std::int64_t row, std::int64_t column, Values& values, int count, bool adds) {
  if (adds) {
    const Values old = load(x, row, column, count);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) values.v[i] += old.v[i];
  }
  store(x, row, column, values, count);
}

// A row of the softmax: which query of which head, and how many keys it sees.
struct RowPlace {
  std::int64_t head, query, seen;
};
__device__ RowPlace place_of(const SoftmaxRows& rows, std::int64_t row) {
  const std::int64_t query = row % rows.queries;
  return {row / rows.queries, query, min(rows.keys, rows.first_position + query + 1)};
}
__device__ RowDropout dropout_of(const SoftmaxRows& rows, const RowPlace& place) {
  return RowDropout(value_of(rows.dropout), rows.first_dropout_row + place.head * rows.dropout_rows + place.query);
}

template <class Body>
__device__ void for_row_chunks(std::int64_t columns, const Body& body) {
  for (std::int64_t column = threadIdx.x * kChunk; column < columns; column += blockDim.x * kChunk)
    body(column, static_cast<int>(min(static_cast<std::int64_t>(kChunk), columns - column)));
}

}  // namespace

void compute_angles(Context& context, double base, std::int64_t columns, std::int64_t positions, float* angles) {
  const std::int64_t planes = columns / 2;
  for_chunks(context, {positions, planes}, [=] __device__(std::int64_t position, std::int64_t first, int count) {
    for (std::int64_t plane = first; plane < first + count; ++plane) {
      const double exponent = 2 * static_cast<double>(plane) / static_cast<double>(columns);
      const double angle = static_cast<double>(position) / pow(base, exponent);
      angles[position * columns + plane] = static_cast<float>(cos(angle));
      angles[position * columns + planes + plane] = static_cast<float>(sin(angle));
    }
  });
}

void rotate_heads(Context& context, const Heads& from, const Heads& to, const Rotation& rotation, Into into) {
  if (to.columns == 0) return;
  // Without angles a head is copied as it is: all of it is the first coordinate.
  const bool turns = rotation.angles != nullptr, adds = into == Into::add;
  const std::int64_t planes = turns ? to.columns / 2 : to.columns, padded = ceil_div(planes, kChunk) * kChunk;
  const Operand in = operand_of(from, planes), out = operand_of(to, planes);
  const std::int64_t from_step = from.step, to_step = to.step;
  const float sign = rotation.back ? -1.0F : 1.0F;
  for_chunks(context, {to.matrix.rows, to.count * padded}, [=] __device__(std::int64_t row, std::int64_t column, int) {
    // Rows have fewer than 2^32 columns, and dividing by 32 bits takes a third of the time.
    const std::int64_t head = static_cast<unsigned>(column) / static_cast<unsigned>(padded),
                       plane = static_cast<unsigned>(column) % static_cast<unsigned>(padded);
    const int count = static_cast<int>(min(static_cast<std::int64_t>(kChunk), planes - plane));
    const std::int64_t source = head * from_step + plane, target = head * to_step + plane;
    Values a = load(in, row, source, count);
    if (turns) {
      Values b = load(in, row, source + planes, count);
      const std::int64_t position = rotation.first_position + row % rotation.rows_per_sequence;
      const float* const cosines = rotation.angles + position * 2 * planes + plane;
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        if (i >= count) continue;
        const float cosine = cosines[i], sine = sign * cosines[planes + i], x = a.v[i];
        a.v[i] = x * cosine - b.v[i] * sine;
        b.v[i] = b.v[i] * cosine + x * sine;
      }
      add_to(out, row, target + planes, b, count, adds);
    }
    add_to(out, row, target, a, count, adds);
  });
}

void sum_heads(Context& context, const Heads& from, const Matrix& to, Into into) {
  const Operand in = operand_of(from, kChunk), out = operand(to);
  const std::int64_t heads = from.count, step = from.step;
  const bool adds = into == Into::add;
  for_chunks(context, {to.rows, to.columns}, [=] __device__(std::int64_t row, std::int64_t column, int count) {
    Values sum = {};
    for (std::int64_t head = 0; head < heads; ++head) {
      const Values a = load(in, row, head * step + column, count);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) sum.v[i] += a.v[i];
    }
    add_to(out, row, column, sum, count, adds);
  });
}

void softmax_forward(Context& context, const SoftmaxRows& rows, const Matrix& scores, const Matrix& used,
                     const SoftmaxSaved& saved) {
  const Operand in = operand(scores), out = operand(used);
  const Operand kept_softmax = operand(saved.softmax), kept_dropped = operand(saved.dropped);
  const std::int64_t width = used.columns, columns = std::max(width, saved.softmax.columns);
  float* const log_sums = saved.log_sums;
  std::uint8_t* const kept = saved.kept;
  for_rows(context, rows.heads * rows.queries, columns, [=] __device__(std::int64_t row) {
    const RowPlace place = place_of(rows, row);
    float largest = -INFINITY, sum = 0;
    for_row_chunks(place.seen, [&](std::int64_t column, int count) {
      const Values a = load(in, row, column, count);
#pragma unroll
      for (int i = 0; i < kChunk; ++i)
        if (i < count) largest = fmaxf(largest, a.v[i]);
    });
    largest = block_max(largest);
    for_row_chunks(place.seen, [&](std::int64_t column, int count) {
      const Values a = load(in, row, column, count);
#pragma unroll
      for (int i = 0; i < kChunk; ++i)
        if (i < count) sum += expf(a.v[i] - largest);
    });
    sum = block_sum(sum);
    if (threadIdx.x == 0 && log_sums != nullptr) log_sums[row] = largest + logf(sum);
    const float inverse = 1.0F / sum;
    const RowDropout drops = dropout_of(rows, place);
    for_row_chunks(columns, [&](std::int64_t column, int count) {
      const std::int64_t readable = max(min(static_cast<std::int64_t>(count), place.seen - column), std::int64_t{0});
      Values p = load(in, row, column, static_cast<int>(readable)), dropped;
      for (int i = 0; i < kChunk; ++i) {
        const bool keeps = rows.dropout_rows == 0 || drops.keeps(column + i);
        p.v[i] = i < readable ? expf(p.v[i] - largest) * inverse : 0.0F;
        dropped.v[i] = rows.dropout_rows == 0 ? p.v[i] : keeps ? p.v[i] * drops.scale() : 0.0F;
        if (kept != nullptr && i < count && column + i < rows.keys)
          kept[row * rows.keys + column + i] = keeps && i < readable ? 1 : 0;
      }
      if (column < width)
        store(out, row, column, dropped, static_cast<int>(min(static_cast<std::int64_t>(count), width - column)));
      const int saved_count =
          static_cast<int>(max(min(static_cast<std::int64_t>(count), rows.keys - column), std::int64_t{0}));
      if (kept_softmax.data != nullptr) store(kept_softmax, row, column, p, saved_count);
      if (kept_dropped.data != nullptr) store(kept_dropped, row, column, dropped, saved_count);
    });
  });
}

void softmax_backward(Context& context, const SoftmaxRows& rows, const Matrix& scores, const Matrix& d_used,
                      const SoftmaxSaved& saved, const Matrix& used, const Matrix& d_scores) {
  const Operand in = operand(scores), gradient = operand(d_used), out = operand(used), d_out = operand(d_scores);
  const Operand kept_softmax = operand(saved.softmax);
  const std::int64_t width = used.columns;
  const float* const log_sums = saved.log_sums;
  for_rows(context, rows.heads * rows.queries, width, [=] __device__(std::int64_t row) {
    const RowPlace place = place_of(rows, row);
    const RowDropout drops = dropout_of(rows, place);
    const auto softmax_at = [&](std::int64_t column, int count) {
      if (kept_softmax.data != nullptr) return load(kept_softmax, row, column, count);
      Values p = load(in, row, column, count);
      for (int i = 0; i < kChunk; ++i) p.v[i] = i < count ? expf(p.v[i] - log_sums[row]) : 0.0F;
      return p;
    };
    const auto factor_at = [&](std::int64_t column) { return rows.dropout_rows == 0 ? 1.0F : drops.factor(column); };
    float sum = 0;
    for_row_chunks(place.seen, [&](std::int64_t column, int count) {
      const Values p = softmax_at(column, count), d = load(gradient, row, column, count);
      for (int i = 0; i < kChunk; ++i) sum += p.v[i] * d.v[i] * factor_at(column + i);
    });
    sum = block_sum(sum);
    for_row_chunks(width, [&](std::int64_t column, int count) {
      const int readable =
          static_cast<int>(max(min(static_cast<std::int64_t>(count), place.seen - column), std::int64_t{0}));
      Values p = softmax_at(column, readable), d = load(gradient, row, column, readable);
      for (int i = 0; i < kChunk; ++i) {
        const float factor = factor_at(column + i);
        d.v[i] = rows.scale * p.v[i] * (d.v[i] * factor - sum);
        p.v[i] *= factor;
      }
      store(out, row, column, p, count);
      store(d_out, row, column, d, count);
    });
  });
}

}  // namespace weft::cuda
