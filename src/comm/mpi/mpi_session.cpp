#include <numeric>
#include <string>

#include "base/error.hpp"
#include "comm/mpi/mpi_calls.hpp"

namespace weft {

bool mpi_is_built() {
  return true;
}

void mpi_check(int code, std::string_view call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  throw RunFailed(fmt::format("{}: {}", call, std::string_view(text, static_cast<std::size_t>(length))));
}

MPI_Comm duplicate(MPI_Comm communicator) {
  MPI_Comm copy = MPI_COMM_NULL;
  mpi_check(MPI_Comm_dup(communicator, &copy), "MPI_Comm_dup");
  mpi_check(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return copy;
}

namespace {

// Whether this call started MPI. One thread at a time calls it, though not always the one that started it.
bool start_mpi() {
  int started = 0;
  int ended = 0;
  mpi_check(MPI_Initialized(&started), "MPI_Initialized");
  mpi_check(MPI_Finalized(&ended), "MPI_Finalized");
  if (ended) fail("MPI was ended in this process and cannot be started again");
  int provided = MPI_THREAD_SINGLE;
  if (started) {
    mpi_check(MPI_Query_thread(&provided), "MPI_Query_thread");
  } else {
    mpi_check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  }
  if (provided < MPI_THREAD_SERIALIZED) {
    fail("this MPI library offers thread level {}; the communication thread needs MPI_THREAD_SERIALIZED ({})", provided,
         static_cast<int>(MPI_THREAD_SERIALIZED));
  }
  return !started;
}

}  // namespace

MpiSession::MpiSession() : state_(std::make_unique<State>()) {
  state_->owns_mpi = start_mpi();
  mpi_check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  mpi_check(MPI_Comm_rank(MPI_COMM_WORLD, &state_->rank), "MPI_Comm_rank");
  mpi_check(MPI_Comm_size(MPI_COMM_WORLD, &state_->size), "MPI_Comm_size");
  state_->control = duplicate(MPI_COMM_WORLD);
}

MpiSession::~MpiSession() {
  // After a failure MPI_Finalize would wait for a process that is gone. The launcher ends what is left of the job.
  if (state_->abandoned) return;
  MPI_Comm_free(&state_->control);
  if (state_->owns_mpi) MPI_Finalize();
}

std::int64_t MpiSession::rank() const {
  return state_->rank;
}

std::int64_t MpiSession::size() const {
  return state_->size;
}

void MpiSession::abandon() {
  state_->abandoned = true;
}

std::vector<std::string> MpiSession::exchange(const std::string& mine) {
  const auto ranks = static_cast<std::size_t>(state_->size);
  const int length = static_cast<int>(mine.size());
  std::vector<int> lengths(ranks);
  mpi_check(MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, state_->control), "MPI_Allgather");
  std::vector<int> begins(ranks);
  std::exclusive_scan(lengths.begin(), lengths.end(), begins.begin(), 0);
  std::string all(static_cast<std::size_t>(begins.back() + lengths.back()), '\0');
  mpi_check(MPI_Allgatherv(mine.data(), length, MPI_CHAR, all.data(), lengths.data(), begins.data(), MPI_CHAR,
                           state_->control),
            "MPI_Allgatherv");
  std::vector<std::string> strings;
  for (std::size_t i = 0; i < ranks; ++i) {
    strings.push_back(all.substr(static_cast<std::size_t>(begins[i]), static_cast<std::size_t>(lengths[i])));
  }
  return strings;
}

}  // namespace weft
