// Finds where the heads of attention and blocks of their queries lie, and prepares queries and keys for the scores.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/aten/loops.hpp"
#include "kernels/aten/rotary.hpp"
#include "kernels/kernels.hpp"

namespace weft::aten {

inline constexpr std::int64_t kBlock = 64;  // queries; with 32, products of small matrices cost what the mask saves

enum Slot : int { kQueries = 1, kKeys, kScores, kGradients, kKeyGradients, kFactors, kDropped };
inline Matrix scratch_matrix(Slot slot, std::int64_t rows, std::int64_t columns) {
  return Matrix::dense(scratch(slot, rows * columns).data(), rows, columns);
}

// Where one head of one sequence stands in the rows and columns.
struct Head {
  std::int64_t sequence = 0, query_head = 0, kv_head = 0;
};

struct QueryBlock {
  std::int64_t begin = 0, end = 0;
  std::int64_t seen = 0;  // keys that its last query sees
  std::int64_t size() const { return end - begin; }
};

inline std::int64_t keys_seen(const AttentionShape& shape, std::int64_t query) {
  return std::min(shape.keys, shape.first_position + query + 1);
}
inline std::int64_t block_count(const AttentionShape& shape) {
  return (shape.queries + kBlock - 1) / kBlock;
}
inline QueryBlock block_at(const AttentionShape& shape, std::int64_t index) {
  const std::int64_t end = std::min(shape.queries, (index + 1) * kBlock);
  return {index * kBlock, end, keys_seen(shape, end - 1)};
}
inline std::int64_t softmax_row(const AttentionShape& shape, Head head, QueryBlock block) {
  return (head.sequence * shape.heads + head.query_head) * shape.queries + block.begin;
}

inline Matrix head_of(const Matrix& x, std::int64_t first_row, std::int64_t rows, std::int64_t column,
                      std::int64_t size) {
  return x.row_slice(first_row, first_row + rows).column_slice(column, column + size);
}
inline Matrix queries_of(const AttentionShape& shape, const Matrix& x, Head head, QueryBlock block) {
  return head_of(x, head.sequence * shape.queries + block.begin, block.size(), head.query_head * shape.head_size,
                 shape.head_size);
}
inline Matrix context_of(const AttentionShape& shape, const Matrix& x, Head head, QueryBlock block) {
  return head_of(x, head.sequence * shape.queries + block.begin, block.size(), head.query_head * shape.value_columns(),
                 shape.value_columns());
}
inline Matrix values_of(const AttentionShape& shape, const Matrix& x, Head head) {
  return head_of(x, head.sequence * shape.keys, shape.keys, head.kv_head * shape.value_step(), shape.value_columns());
}

template <class Body>  // body(head): the heads of one key head follow each other
void for_heads(const AttentionShape& shape, const Body& body) {
  const std::int64_t share = shape.heads / shape.kv_heads;
  for (std::int64_t sequence = 0; sequence < shape.sequences; ++sequence)
    for (std::int64_t head = 0; head < shape.heads; ++head) body(Head{sequence, head, head / share});
}

inline void copy_rows(const Matrix& from, const Matrix& to) {
  for (std::int64_t r = 0; r < from.rows; ++r) std::copy_n(row(from, r), from.columns, row(to, r));
}
inline void add_rows(const Matrix& values, const Matrix& sums) {
  for (std::int64_t r = 0; r < sums.rows; ++r) {
    const float* in = row(values, r);
    float* out = row(sums, r);
    for (std::int64_t c = 0; c < sums.columns; ++c) out[c] += in[c];
  }
}
inline void clear_rows(const Matrix& x, std::int64_t begin) {
  for (std::int64_t r = begin; r < x.rows; ++r) std::fill_n(row(x, r), x.columns, 0.0F);
}

// Queries and keys with their positions, in scratch memory: rotated, or with a key that all heads share appended to
// each head's own columns, of which then only the appended ones are rotated.
class Positioned {
 public:
  Positioned(const AttentionShape& shape, const Matrix& shared_key) : shape_(shape), shared_(shared_key) {
    if (shape.rotary_base == 0) return;
    angles_ = rotary_angles(shape.rotary_base, turned(), std::max(shape.keys, shape.first_position + shape.queries));
  }

  bool changes_keys() const { return !angles_.empty() || !shared_.empty(); }

  Matrix queries(const Matrix& queries, QueryBlock block) const {
    if (angles_.empty()) return queries;
    const Matrix result = scratch_matrix(kQueries, queries.rows, queries.columns);
    if (own() > 0) copy_rows(queries.column_slice(0, own()), result.column_slice(0, own()));
    rotate(tail(queries), tail(result), angles_, shape_.first_position + block.begin, Rotation::forward);
    return result;
  }
  void queries_back(const Matrix& dq, QueryBlock block) const {
    if (!angles_.empty()) rotate(tail(dq), tail(dq), angles_, shape_.first_position + block.begin, Rotation::back);
  }

  // Returns the columns that a head has for itself.
  Matrix own_keys(const Matrix& k, Head head) const {
    const std::int64_t columns = shared_.empty() ? shape_.head_size : own();
    return head_of(k, head.sequence * shape_.keys, shape_.keys, head.kv_head * shape_.key_step(columns), columns);
  }
  Matrix keys(const Matrix& k, Head head) const {
    const Matrix own_part = own_keys(k, head);
    if (!changes_keys()) return own_part;
    const Matrix result = scratch_matrix(kKeys, shape_.keys, shape_.head_size);
    if (own() > 0) copy_rows(own_part, result.column_slice(0, own()));
    turn(shared_.empty() ? own_part : rows_of_sequence(shared_, head), tail(result), Rotation::forward);
    return result;
  }

  // Moves gradients of prepared keys back to where the keys came from. They cover the first keys of a sequence; keys
  // that no query sees have none.
  void keys_back(const Matrix& d_positioned, const Matrix& d_keys, const Matrix& d_shared, Head head, Into into) const {
    const std::int64_t seen = d_positioned.rows;
    turn(tail(d_positioned), tail(d_positioned), Rotation::back);
    store(shared_.empty() ? d_positioned : d_positioned.column_slice(0, own()), d_keys.row_slice(0, seen), into);
    if (shared_.empty()) return;
    const Matrix of_sequence = rows_of_sequence(d_shared, head);
    const Into first = head.kv_head == 0 ? into : Into::add;  // all heads add to it
    if (first == Into::overwrite) clear_rows(of_sequence, seen);
    store(tail(d_positioned), of_sequence.row_slice(0, seen), first);
  }

 private:
  std::int64_t turned() const { return shared_.empty() ? shape_.head_size : shared_.columns; }
  std::int64_t own() const { return shape_.head_size - turned(); }
  Matrix tail(const Matrix& x) const { return x.column_slice(own(), shape_.head_size); }
  Matrix rows_of_sequence(const Matrix& x, Head head) const {
    return x.row_slice(head.sequence * shape_.keys, (head.sequence + 1) * shape_.keys);
  }
  void turn(const Matrix& from, const Matrix& to, Rotation rotation) const {
    if (!angles_.empty()) {
      rotate(from, to, angles_, 0, rotation);
    } else if (from.data != to.data) {
      copy_rows(from, to);
    }
  }
  static void store(const Matrix& from, const Matrix& to, Into into) {
    if (into == Into::overwrite) {
      copy_rows(from, to);
    } else {
      add_rows(from, to);
    }
  }

  const AttentionShape& shape_;
  const Matrix& shared_;
  std::span<const float> angles_;
};

}  // namespace weft::aten
