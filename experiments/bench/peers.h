/* Kernels of others in the sweep: libfwht_bench.so, which `python -m fwht.bench` loads. Plain C; it changes with the
 * package beside it, so there is no promise about versions but the number below. */
#ifndef FWHT_BENCH_PEERS_H
#define FWHT_BENCH_PEERS_H

#include <stddef.h>
#include <stdint.h>

#include "python/include/fwht.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FWHT_BENCH_VERSION 3

/* Contiguous rows on the current device, multiplied by an operator of matrices that are known by name. */
typedef struct fwht_bench_problem {
  const char* text;     /* "f16/n4096/r8192/out" */
  fwht_problem problem; /* with the operator's text, "4096" for H_n, and the scale as a number */
  int32_t device;
} fwht_bench_problem;

/* Who answers. Functions return 0 or, with one sentence in `why` (of `size` bytes, zero-terminated), something else. They
 * are called from the thread that called fwht_bench_run. */
typedef struct fwht_bench_peer {
  const char* name;     /* in the tables: "peer:dao" */
  const char* settings; /* a JSON object: version, commit, module ... */
  /* Whether it does the problem. No launch. */
  int32_t (*supports)(const fwht_bench_problem* problem, char* why, size_t size);
  /* Enqueues one transform on `stream`, which may be captured. A peer that makes its own output leaves `out` as it is,
   * unless `deliver` is 1: then the result goes there, however it gets there (for the check, which is not timed). */
  int32_t (*launch)(const fwht_bench_problem* problem, const void* in, void* out, void* stream,
                    int32_t deliver, char* why, size_t size);
  /* Microseconds of one call on the host, without a graph; negative: no answer. */
  double (*host_us)(const fwht_bench_problem* problem);
} fwht_bench_peer;

int32_t fwht_bench_version(void);

/* fwht_sweep with these arguments and peers; argv[0] is the program's name in messages and in the results folder.
 * Returns its exit code. */
int32_t fwht_bench_run(int32_t argc, const char* const* argv, const fwht_bench_peer* peers, size_t count);

#ifdef __cplusplus
}
#endif
#endif /* FWHT_BENCH_PEERS_H */
