/* Linear layers of others in fwht_linear: the second half of libfwht_bench.so (peers.h has the first). */
#ifndef FWHT_BENCH_LINEAR_PEERS_H
#define FWHT_BENCH_LINEAR_PEERS_H

#include <stddef.h>
#include <stdint.h>

#include "python/include/fwht.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y[m][n] = x[m][k] W on the current device. */
typedef struct fwht_bench_linear_problem {
  const char* text;          /* "bf16/m16/n4096/k4096/w4g128" */
  fwht_linear_problem layer; /* its group is a number of rows */
  int32_t device;
} fwht_bench_linear_problem;

/* Who answers. Functions return 0 or, with one sentence in `why` (of `size` bytes, zero-terminated), something else. */
typedef struct fwht_bench_linear_peer {
  const char* name;     /* in the tables: "peer:tinygemm" */
  const char* settings; /* a JSON object of texts: version, module ... */
  /* Whether it does the problem, which rotates nothing and has sorted rows. No launch. */
  int32_t (*supports)(const fwht_bench_linear_problem* problem, char* why, size_t size);
  /* Bytes of its own form of the weights. */
  int64_t (*packed_bytes)(const fwht_bench_linear_problem* problem);
  /* GPTQ's tensors (qzeros NULL: symmetric) to that form; everything in host memory. */
  int32_t (*pack)(const fwht_bench_linear_problem* problem, const uint32_t* qweight, const uint32_t* qzeros,
                  const uint16_t* scales, void* packed, char* why, size_t size);
  /* Enqueues the layer on `stream`. What is timed is captured. A peer that makes its own output writes it to y where the
   * stream is not captured, for the check. */
  int32_t (*launch)(const fwht_bench_linear_problem* problem, const void* x, const void* packed, void* y,
                    void* stream, char* why, size_t size);
} fwht_bench_linear_peer;

/* fwht_linear with these arguments and peers, at most four. Returns its exit code. */
int32_t fwht_bench_linear_run(int32_t argc, const char* const* argv, const fwht_bench_linear_peer* peers,
                              size_t count);

#ifdef __cplusplus
}
#endif
#endif /* FWHT_BENCH_LINEAR_PEERS_H */
