// Times one collective with MPI. //benchmarks:collectives --peer-mpi compiles this file with mpicc.
//
//     mpirun -np 2 peer_mpi all_reduce float32 STEP_BYTES SIZE...
//
// Rank 0 prints one line per size and form: "SIZE in|out MEAN P50 P99 WRONG", in microseconds.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, world;

static int first_value(long i, int r) { return (int)((i + 3L * r) % 7 + 1); }

static int by_time(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

// Elements are float32, or 16-bit integers that stand in for bfloat16 where nothing is summed.
typedef struct {
  const char* op;
  int is_float, in_place;
  long row;
  char *in, *out;
} Case;

static void call(const Case* c) {
  const MPI_Datatype type = c->is_float ? MPI_FLOAT : MPI_UINT16_T;
  const int n = (int)c->row;
  void* const in_place = MPI_IN_PLACE;
  if (!strcmp(c->op, "all_reduce")) {
    MPI_Allreduce(c->in_place ? in_place : c->in, c->in_place ? c->in : c->out, n, type, MPI_SUM, MPI_COMM_WORLD);
  } else if (!strcmp(c->op, "reduce")) {
    MPI_Reduce(rank == 0 ? in_place : c->in, c->in, n, type, MPI_SUM, 0, MPI_COMM_WORLD);
  } else if (!strcmp(c->op, "broadcast")) {
    MPI_Bcast(c->in, n, type, 0, MPI_COMM_WORLD);
  } else if (!strcmp(c->op, "gather")) {
    MPI_Gather(c->in, n, type, c->out, n, type, 0, MPI_COMM_WORLD);
  } else if (!strcmp(c->op, "all_gather")) {
    MPI_Allgather(c->in_place ? in_place : c->in, n, type, c->out, n, type, MPI_COMM_WORLD);
  } else if (!strcmp(c->op, "scatter")) {
    MPI_Scatter(c->in, n, type, c->out, n, type, 0, MPI_COMM_WORLD);
  } else if (!strcmp(c->op, "reduce_scatter")) {
    MPI_Reduce_scatter_block(c->in_place ? in_place : c->in, c->in_place ? c->in : c->out, n, type, MPI_SUM,
                             MPI_COMM_WORLD);
  } else if (!strcmp(c->op, "all_to_all")) {
    MPI_Alltoall(c->in, n, type, c->out, n, type, MPI_COMM_WORLD);
  } else if (!strcmp(c->op, "sendrecv") && rank == 0) {
    MPI_Send(c->in, n, type, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(c->out, n, type, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else if (!strcmp(c->op, "sendrecv") && rank == 1) {
    MPI_Recv(c->out, n, type, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(c->in, n, type, 0, 0, MPI_COMM_WORLD);
  } else if (!strcmp(c->op, "barrier")) {
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

// Checks all_reduce of float32 only.
static long count_wrong(const Case* c) {
  if (strcmp(c->op, "all_reduce") || !c->is_float) return 0;
  float* in = (float*)c->in;
  for (long i = 0; i < c->row; ++i) in[i] = (float)first_value(i, rank);
  call(c);
  const float* out = (const float*)(c->in_place ? c->in : c->out);
  long wrong = 0;
  for (long i = 0; i < c->row; ++i) {
    int sum = 0;
    for (int r = 0; r < world; ++r) sum += first_value(i, r);
    wrong += out[i] != (float)sum;
  }
  return wrong;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  const char* op = argv[1];
  const int is_float = !strcmp(argv[2], "float32");
  const long step_bytes = atol(argv[3]), element = is_float ? 4 : 2;
  const int parts = strstr(op, "gather") || strstr(op, "scatter") || !strcmp(op, "all_to_all");
  const int both = !strcmp(op, "all_reduce") || !strcmp(op, "all_gather") || !strcmp(op, "reduce_scatter");
  const int only_in = !strcmp(op, "reduce") || !strcmp(op, "broadcast");
  for (int a = 4; a < argc; ++a) {
    const long size = atol(argv[a]);
    long row = size / element / (parts ? world : 1);
    if (row < 1) row = 1;
    const size_t bytes = (size_t)(row * element * (parts ? world : 1));
    for (int in_place = 0; in_place < 2; ++in_place) {
      if (both ? 0 : in_place != only_in) continue;
      Case c = {op, is_float, in_place, row, malloc(bytes), malloc(bytes)};
      memset(c.in, 0, bytes);
      memset(c.out, 0, bytes);
      long wrong = count_wrong(&c), all_wrong = 0;
      MPI_Reduce(&wrong, &all_wrong, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
      memset(c.in, 0, bytes);
      long steps = step_bytes / (long)bytes;
      steps = steps < 5 ? 5 : steps > 500 ? 500 : steps;
      double* times = malloc(sizeof(double) * (size_t)steps);
      for (long i = 0; i < steps / 4 + 1; ++i) call(&c);
      MPI_Barrier(MPI_COMM_WORLD);
      double mean = 0, slowest = 0;
      for (long i = 0; i < steps; ++i) {
        const double begin = MPI_Wtime();
        call(&c);
        times[i] = MPI_Wtime() - begin;
        mean += times[i] / (double)steps;
      }
      MPI_Reduce(&mean, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
      qsort(times, (size_t)steps, sizeof(double), by_time);
      const double us = !strcmp(op, "sendrecv") ? 0.5e6 : 1e6;
      if (rank == 0) {
        printf("%ld %s %.3f %.3f %.3f %ld\n", size, in_place ? "in" : "out", slowest * us, times[steps / 2] * us,
               times[(steps - 1) * 99 / 100] * us, all_wrong);
      }
      free(times);
      free(c.in);
      free(c.out);
    }
  }
  MPI_Finalize();
  return 0;
}
