/* C ABI of fwht: y_r = scale * Op x_r for `rows` independent rows x_r of n elements each; and linear layers with 4-bit
 * weights.
 *
 * Plain C, no other header is needed. Every function is thread-safe, throws nothing and never synchronises a
 * stream. Functions that can fail return a status; fwht_last_error() has the sentence. Strings are UTF-8;
 * those that a function returns belong to the library and are never freed by the caller.
 *
 * Structs begin with their size as the caller knows it, so that a newer library reads an older caller's
 * struct: fields that the caller does not have count as zero, and zero means what it meant before. A larger
 * struct than the library's is refused unless its unknown tail is zero. FWHT_PROBLEM_INIT sets the size. */
#ifndef FWHT_H
#define FWHT_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define FWHT_API __attribute__((visibility("default")))
#else
#define FWHT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Major version of this interface, and of libfwht.so.1. It grows only when callers must be compiled anew. */
#define FWHT_ABI_VERSION 1

/* Values of `device`; others are ordinals of CUDA devices. */
#define FWHT_HOST (-1)              /* the pointers are host memory */
#define FWHT_DEVICE_OF_POINTER (-2) /* where `out` is, as CUDA says: costs a driver call */

typedef enum fwht_status {
  FWHT_OK = 0,
  FWHT_BAD_REQUEST = 1, /* a value breaks a rule; the message has the value and the limit */
  FWHT_UNSUPPORTED = 2, /* valid, but the variant does not do it; the message has the reason */
  FWHT_FAILED = 3       /* CUDA or memory failed underneath, or there is no CUDA */
} fwht_status;

typedef enum fwht_dtype {
  FWHT_F16 = 0,
  FWHT_BF16 = 1,
  FWHT_F32 = 2,
  FWHT_F64 = 3,
  FWHT_I32 = 4, /* `scale` is 1, and sums wrap modulo 2^32 */
  FWHT_I64 = 5  /* as FWHT_I32, modulo 2^64 */
} fwht_dtype;

/* Orders of the coefficients of H_n: place k holds what natural order has at place k, with its bits reversed, or at
 * the reversed bits of k's Gray code. */
typedef enum fwht_ordering {
  FWHT_NATURAL = 0, /* Hadamard */
  FWHT_DYADIC = 1,  /* Paley */
  FWHT_SEQUENCY = 2 /* Walsh: by sign changes */
} fwht_ordering;

typedef enum fwht_placement { FWHT_IN_PLACE = 0, FWHT_OUT_OF_PLACE = 1 } fwht_placement;

/* Bits of fwht_problem.flags. */
#define FWHT_ORTHONORMAL 1u         /* 1/sqrt(n), whatever the field `scale` says; 0 there means it too */
#define FWHT_PROGRAMMATIC_LAUNCH 2u /* programmatic dependent launch (CUDA Programming Guide) */
#define FWHT_SCALE_AS_GIVEN 8u      /* 0 in the field `scale` is the number 0 */
/* For fwht_plan_create alone: the plan owns no memory that executions work in. Each brings its scratch, is refused
 * without, and may run beside others. Variants that keep such memory (matmul, Kokkos on CUDA) are refused. */
#define FWHT_SCRATCH_OF_CALLER 16u

/* What is asked for. Zero in `scale` and in the fields after it is the ordinary choice. */
typedef struct fwht_problem {
  size_t struct_size; /* sizeof(fwht_problem) */
  int64_t n;          /* row length in elements; Op is H_n in natural order unless op_text names another */
  int64_t rows;       /* 0 is a valid problem that does nothing */
  double scale;       /* applied once, in fp32 (fp64 for FWHT_F64); 0: 1/sqrt(n); 1.0: the bare sums */
  int32_t dtype;      /* fwht_dtype of input and output */
  int32_t placement;  /* fwht_placement: in place, `in` and `out` are the same pointer */
  int64_t in_stride;  /* elements between row starts of the input; 0: n */
  int64_t out_stride; /* the same of the output; 0: n out of place, in_stride in place */
  uint32_t flags;
  int32_t threads; /* most threads of a host variant; 0: all that the process may use */
  const char*
      op_text; /* operator such as "28x512" instead of H_n, and then n must be 0 or its order; NULL: H_n */
  const char* encoding; /* quantized output such as "e4m3:row" (docs/quantize.md), out of place; NULL: none */
  const char* preparation; /* what is done to rows first, and where codes go: "rms", "rope64h32",
                              "page64x100", or two such words between slashes (docs/quantize.md); NULL: nothing */
  int32_t in_ordering;  /* fwht_ordering of the input, for an inverse; other than FWHT_NATURAL out of place */
  int32_t out_ordering; /* the same of the output */
  /* Rows that lie between each other: element j of row r is element (r / inner) stride + j inner + r % inner. So a
   * transform goes along any dimension of a tensor whose later dimensions have `inner` elements together; strides are
   * then of blocks, 0: n times inner. `rows` counts all rows. 0: 1, rows side by side. */
  int64_t inner;
} fwht_problem;

#define FWHT_PROBLEM_INIT                                                                                  \
  {                                                                                                        \
    sizeof(fwht_problem), 0, 0, 0.0, FWHT_F32, FWHT_IN_PLACE, 0, 0, 0u, 0, NULL, NULL, NULL, FWHT_NATURAL, \
        FWHT_NATURAL, 0                                                                                    \
  }

/* What a transform reads and writes. Members that the problem does not need are NULL or 0. All memory is that of
 * `device`. Signs are one bit per element of a row: bit i mod 8 of byte i / 8 is set for -1, in whole words of 32
 * bits, at any address. Dense factors are their entries in the input's dtype, row-major, one factor behind the other, none
 * transposed. fwht_encoding_info_json says how many bytes `scales` needs. The caller keeps `positions` below the rows
 * of `cos_sin`, which nobody counts; a negative one is refused on the host, and on a device it reads out of bounds. */
typedef struct fwht_operands {
  size_t struct_size; /* sizeof(fwht_operands) */
  const void* in;
  void* out;                /* rows, or the codes of the encoding */
  const void* signs;        /* of an operator with signs */
  const void* dense;        /* of an operator with dense factors */
  void* scales;             /* of the encoding */
  int64_t scales_bytes;     /* room behind `scales`; 0: not said */
  double tensor_scale;      /* where the encoding asks for a number of the whole tensor; 0: not given */
  const void* weight;       /* of "rms": n numbers in the input's dtype, 16-byte aligned */
  double epsilon;           /* of "rms": what is added to the mean square */
  const float* cos_sin;     /* of "rope64": [positions][64], 32 cosines, then 32 sines; 16-byte aligned */
  const int64_t* positions; /* of "rope64h32": the row of cos_sin for every 32 rows; 8-byte aligned */
  const int64_t* slots; /* of "page64x100", where `out` is the pages: the place of each row, no two alike; a
                               negative one, or one behind the last, leaves the row out; 8-byte aligned */
  const float*
      tensor_scale_at; /* tensor_scale in memory of `device`, which the kernel reads, so that nobody waits
                                   for it; its value is not checked, and the field `tensor_scale` must be 0 */
  /* For fwht_plan_execute_operands alone: memory that this execution works in, of at least the plan's scratch_bytes, at a
   * multiple of 256 bytes. Executions with a scratch each may run at once. NULL: in what the plan owns. */
  void* scratch;
  int64_t scratch_bytes; /* room behind `scratch` */
} fwht_operands;

#define FWHT_OPERANDS_INIT \
  { sizeof(fwht_operands), NULL, NULL, NULL, NULL, NULL, 0, 0.0, NULL, 0.0, NULL, NULL, NULL, NULL, NULL, 0 }

typedef struct fwht_plan fwht_plan; /* what a variant decided for one problem on one device; opaque */

FWHT_API int32_t fwht_abi_version(void);
FWHT_API const char* fwht_version(void);

/* The message of this thread's last call that did not return FWHT_OK; "" when there is none. */
FWHT_API const char* fwht_last_error(void);

/* What was built, as one JSON object: version, commit, dirty, sources_hash, build_type, cxx, cxx_flags, cuda,
 * cuda_flags, abi_version. Where CUDA is missing, `cuda` says why. NULL where there is no memory. */
FWHT_API const char* fwht_build_info_json(void);

/* CUDA devices of this machine; 0 where there is none or the library was built without CUDA. */
FWHT_API int32_t fwht_device_count(void);

typedef struct fwht_variant {
  size_t struct_size; /* sizeof(fwht_variant), set by the caller */
  const char* name;
  const char* summary; /* one line */
  int32_t on_device;   /* 1: works on device memory, 0: on host memory */
} fwht_variant;

/* Variants in ladder order; those that are not built stay listed, and fwht_supports says why they refuse. */
FWHT_API size_t fwht_variant_count(void);
FWHT_API fwht_status fwht_get_variant(size_t index, fwht_variant* variant);

/* FWHT_OK, or FWHT_UNSUPPORTED with the reason as last error. `variant` NULL is the default one: "auto" on a
 * CUDA device, "cpu" on the host. Asks no device to do anything. */
FWHT_API fwht_status fwht_supports(const fwht_problem* problem, const char* variant, int32_t device);

/* One call. On a device the first one for a problem makes its plan (up to a millisecond), which is kept: one that was
 * captured until fwht_clear_plans(), of the others the 1024 that were used last. `stream` is a cudaStream_t (NULL: the
 * default stream) and ignored on the host, where
 * the work is done when the call returns. On a device it is enqueued only, and the calling thread's current
 * device is as before. May be called while the stream is captured. in == out exactly for FWHT_IN_PLACE; out
 * of place the spans must not overlap, but that rows of equal strides may lie between each other. */
FWHT_API fwht_status fwht_transform(const fwht_problem* problem, const char* variant, const void* in,
                                    void* out, int32_t device, void* stream);

/* The same for problems with signs, dense factors, an encoding or a preparation. */
FWHT_API fwht_status fwht_transform_operands(const fwht_problem* problem, const char* variant,
                                             const fwht_operands* operands, int32_t device, void* stream);

/* The operator for rows of n elements by matrices that are known by name, such as "28x512"; and the transpose
 * of an operator. NULL with a sentence as last error where there is none. Valid until this thread asks again. */
FWHT_API const char* fwht_operator_for(int64_t n);
FWHT_API const char* fwht_operator_transposed(const char* op_text);
/* As one JSON object: text, n, symmetric, signs ("none", "first", "last"), dense_entries. Else as above. */
FWHT_API const char* fwht_operator_info_json(const char* op_text);
/* Of an encoding for so many rows of n elements, as one JSON object: text, element, code_bits, scale_type, layout,
 * token (elements that share a row of the matrix of scales), scale_rows, scale_columns, scale_bytes (the buffer,
 * padding included), needs_tensor_scale. Else as above. */
FWHT_API const char* fwht_encoding_info_json(const char* encoding, int64_t n, int64_t rows);

/* Destroys every plan that fwht_transform keeps and returns how many there were. Only when none of their
 * launches is pending and no graph that was captured from them will be launched again. */
FWHT_API size_t fwht_clear_plans(void);

/* A plan of one's own. `*plan` is NULL unless the status is FWHT_OK. FWHT_DEVICE_OF_POINTER is not possible.
 */
FWHT_API fwht_status fwht_plan_create(const fwht_problem* problem, const char* variant, int32_t device,
                                      fwht_plan** plan);
/* As fwht_transform. Both pointers must be multiples of the plan's `alignment`. */
FWHT_API fwht_status fwht_plan_execute(const fwht_plan* plan, const void* in, void* out, void* stream);
FWHT_API fwht_status fwht_plan_execute_operands(const fwht_plan* plan, const fwht_operands* operands,
                                                void* stream);
/* The plan by which fwht_transform works, for fwht_plan_execute on any stream and thread, which is quicker. It is
 * kept until fwht_clear_plans(); the handle is the caller's, for fwht_plan_destroy. `*plan` is NULL where there is none
 * yet, where each stream has its own, and once many have been given away. On the host a new one. Refuses what
 * fwht_plan_create refuses. */
FWHT_API fwht_status fwht_plan_kept(const fwht_problem* problem, const char* variant, int32_t device,
                                    fwht_plan** plan);
/* What was decided, as one JSON object: variant, problem (its text form), device, alignment, scratch_bytes,
 * one_stream_at_a_time (the plan owns memory that executions change), promises (batch_invariant, layout_invariant,
 * row_isolation), roundings, settings; and arithmetic: the variant whose bits the results have, which another plan of
 * the same dtype, operator and scale gives the same of, codes or not. Valid as long as the plan. */
FWHT_API const char* fwht_plan_info_json(const fwht_plan* plan);
/* NULL is allowed. No launch of the plan may be pending, and no graph captured from it may be launched again.
 */
FWHT_API void fwht_plan_destroy(fwht_plan* plan);

/* --- Walsh spectra, in host memory but for functions whose name ends in _on (docs/long_vectors.md) -----------
 * `threads` as in fwht_problem. Everything else is done when a function returns. */

/* How the 2^k values of a Boolean function lie in memory, f(0) first. */
typedef enum fwht_function_form {
  FWHT_FUNCTION_PACKED = 0, /* f(x) is bit x mod 8 of byte x / 8; at least three variables */
  FWHT_FUNCTION_BITS = 1,   /* a byte each, 0 or 1 */
  FWHT_FUNCTION_SIGNS = 2   /* a signed byte each, (-1)^f(x): 1 or -1 */
} fwht_function_form;

typedef struct fwht_spectrum_summary {
  size_t struct_size;      /* sizeof(fwht_spectrum_summary), set by the caller */
  int64_t largest;         /* max |W|, W(0) among them */
  int64_t place;           /* the first a that has it */
  int64_t nonlinearity;    /* 2^(k-1) - largest / 2 */
  uint64_t sum_of_squares; /* modulo 2^64; 4^k for a Boolean function (Parseval) */
} fwht_spectrum_summary;

/* W(a) = sum over x of (-1)^(f(x) + <a, x>) for `functions` functions of 1 to 30 variables, one behind the other:
 * functions x 2^variables int32, apart from the values. A value that is not of the form is FWHT_BAD_REQUEST with its place. */
FWHT_API fwht_status fwht_walsh_spectrum(int32_t form, const void* values, int32_t variables,
                                         int64_t functions, int32_t* spectra, int32_t threads);
/* The same in memory of a CUDA device, enqueued on `stream` as fwht_transform does, packed values at a multiple of 4
 * bytes. Values are not looked at: others than the form has give sums of what they are. */
FWHT_API fwht_status fwht_walsh_spectrum_on(int32_t form, const void* values, int32_t variables,
                                            int64_t functions, int32_t* spectra, int32_t device,
                                            void* stream);
/* Of one spectrum. */
FWHT_API fwht_status fwht_walsh_summary(const int32_t* spectrum, int32_t variables,
                                        fwht_spectrum_summary* summary);
/* Of functions, whose spectra nobody keeps: functions x 4 numbers, those of fwht_spectrum_summary in its order. On a
 * device the last pass reduces its sums in place of storing them, in a `workspace` at a multiple of 16 bytes, of as many
 * as the third function says; `summaries` lie there too. */
FWHT_API fwht_status fwht_walsh_summaries(int32_t form, const void* values, int32_t variables,
                                          int64_t functions, int64_t* summaries, int32_t threads);
FWHT_API fwht_status fwht_walsh_summaries_on(int32_t form, const void* values, int32_t variables,
                                             int64_t functions, int64_t* summaries, void* workspace,
                                             int64_t workspace_bytes, int32_t device, void* stream);
FWHT_API fwht_status fwht_walsh_summaries_workspace(int32_t variables, int64_t functions, int64_t* bytes);
/* The `count` coefficients that are largest in size, the largest first, of equal ones the first one first. */
FWHT_API fwht_status fwht_walsh_largest(const int32_t* spectrum, int32_t variables, int64_t count,
                                        int64_t* places, int32_t* values);
/* Of one function, whose spectrum nobody keeps. On a device at most 256, in a `workspace` at a multiple of 256 bytes, of
 * as many as the third function says; `places` and `sums` lie there too. */
FWHT_API fwht_status fwht_walsh_largest_of(int32_t form, const void* values, int32_t variables, int64_t count,
                                           int64_t* places, int32_t* sums, int32_t threads);
FWHT_API fwht_status fwht_walsh_largest_of_on(int32_t form, const void* values, int32_t variables,
                                              int64_t count, int64_t* places, int32_t* sums, void* workspace,
                                              int64_t workspace_bytes, int32_t device, void* stream);
FWHT_API fwht_status fwht_walsh_largest_of_workspace(int32_t variables, int64_t count, int64_t* bytes);
/* How many elements of the transform of contiguous FWHT_I32 or FWHT_I64 rows do not fit the dtype. */
FWHT_API fwht_status fwht_count_overflows(const fwht_problem* problem, const void* in, int64_t* count);
/* c[i] = sum over j of a[j] b[i xor j], for rows of n elements: FWHT_F32, FWHT_F64, or FWHT_I32 and FWHT_I64, which are
 * exact, and refused where n |a| |b| (Euclidean lengths) is not below 2^31 or 2^63. `out` is a, or b, or overlaps
 * neither. */
FWHT_API fwht_status fwht_dyadic_convolution(int32_t dtype, int64_t n, int64_t rows, const void* a,
                                             const void* b, void* out, int32_t threads);
/* The same in memory of a CUDA device, enqueued on `stream`, with the product inside the passes. Values are not looked at:
 * integers with sums that do not fit wrap before they are divided by n. It works in `workspace`, at a multiple of 16
 * bytes, of as many as the second function says: 0 where b is a. */
FWHT_API fwht_status fwht_dyadic_convolution_on(int32_t dtype, int64_t n, int64_t rows, const void* a,
                                                const void* b, void* out, void* workspace,
                                                int64_t workspace_bytes, int32_t device, void* stream);
FWHT_API fwht_status fwht_dyadic_convolution_workspace(int32_t dtype, int64_t n, int64_t rows,
                                                       int32_t autocorrelation, int32_t device,
                                                       int64_t* bytes);
/* (n + 31) / 32 words of n signs, as fwht_operands wants them, by n and seed alone; and `count` of n rows, ascending,
 * each as likely. */
FWHT_API fwht_status fwht_random_signs(int64_t n, uint64_t seed, uint32_t* words);
FWHT_API fwht_status fwht_random_rows(int64_t n, int64_t count, uint64_t seed, int64_t* rows);
/* y = H D_k ... H D_1 x with H orthonormal, that of fwht_operator_for(n), D_i the signs of signs[i - 1], rows side by
 * side; `out` may be `in`. FWHT_F32, FWHT_F64, FWHT_F16 or FWHT_BF16. */
FWHT_API fwht_status fwht_rounds(int32_t dtype, int64_t n, int64_t rows, int32_t count,
                                 const void* const* signs, const void* in, void* out, int32_t threads);
/* The same in memory of CUDA device `device`, on `stream`, by one kernel, or where `transposed` is not 0
 * D_1 H ... D_k H x: n from 64 to 4096, 2^j or m 2^j with m 12, 20, 28 or 36 and j at least 3; FWHT_F32, FWHT_F16 or
 * FWHT_BF16, count k from 1 to 8. fp32 inside, rounded once. `signs` has n / 32 words of each round, one round behind
 * the other, on the device. `in` and `out` at multiples of 16 bytes, the same or apart. */
FWHT_API fwht_status fwht_rounds_on(int32_t dtype, int64_t n, int64_t rows, int32_t transposed, int32_t count,
                                    const uint32_t* signs, const void* in, void* out, int32_t device,
                                    void* stream);
/* Codes of the rounds of fp32 rows, and one scale s a row. bits 8: int8, s = a / 127, a the largest |y|. 4: two a byte,
 * the even element in the low half, s = a / 7. 1: eight a byte, the first in the lowest bit, set where y < 0, s the
 * mean of |y|. `scales` at a multiple of 16 bytes, codes of 4 or 8 bits at one of 4; the rest as above. */
FWHT_API fwht_status fwht_rounds_to_codes(int64_t n, int64_t rows, int32_t count, const void* const* signs,
                                          const float* in, int32_t bits, void* codes, float* scales,
                                          int32_t threads);
FWHT_API fwht_status fwht_rounds_to_codes_on(int64_t n, int64_t rows, int32_t count, const uint32_t* signs,
                                             const float* in, int32_t bits, void* codes, float* scales,
                                             int32_t device, void* stream);
/* SRHT: y = sqrt(N / m) R H D (x, 0 ... 0), N the power of two from `length` up, 2 at least, D fwht_random_signs(N, seed),
 * R the m rows fwht_random_rows(N, m, seed); FWHT_F32 or FWHT_F64, vectors side by side, `in` and `out` apart. */
FWHT_API fwht_status fwht_sketch(int32_t dtype, int64_t length, int64_t m, uint64_t seed, int64_t vectors,
                                 const void* in, void* out, int32_t threads);
/* The 3 ((N + 31) / 32) words that a device reads of a sketch; made once, copied there by the caller. */
FWHT_API fwht_status fwht_sketch_table(int64_t length, int64_t m, uint64_t seed, uint32_t* words);
/* The same sketch in memory of CUDA device `device`, on `stream`, or where `transposed` is not 0 its transpose, from
 * vectors of m to vectors of `length`. `table` is a copy of fwht_sketch_table's words at a multiple of 8 bytes, and is
 * not looked at. The workspace has fwht_sketch_workspace bytes, 0 where one kernel holds N elements. Nothing that is
 * written overlaps anything. */
FWHT_API fwht_status fwht_sketch_on(int32_t dtype, int64_t length, int64_t m, int32_t transposed,
                                    int64_t vectors, const uint32_t* table, const void* in, void* out,
                                    void* workspace, int64_t workspace_bytes, int32_t device, void* stream);
FWHT_API fwht_status fwht_sketch_workspace(int32_t dtype, int64_t length, int64_t m, int64_t vectors,
                                           int32_t device, int64_t* bytes);

/* --- linear layers with 4-bit weights ----------------------------------------------------------------------
 * y[m][n] = x[m][k] W[k][n] for m tokens, x rotated first where the problem says so. W[i][c] = scales[g][c] (q - z) in
 * GPTQ's format, g the group of row i. */

typedef enum fwht_zero_points {
  FWHT_ZERO_POINTS_V1 = 0,       /* files of version 1 store z - 1 */
  FWHT_ZERO_POINTS_V2 = 1,       /* files of version 2 store z */
  FWHT_ZERO_POINTS_SYMMETRIC = 2 /* none are stored, z = 8 */
} fwht_zero_points;

#define FWHT_WHOLE (-1)   /* as group: all rows; as rotation: H_k */
#define FWHT_ACT_ORDER 4u /* of flags: rows belong to groups in any order, x comes in the order of the rows */

typedef struct fwht_linear_problem {
  size_t struct_size; /* sizeof(fwht_linear_problem) */
  int64_t m;          /* tokens; 0 is a valid problem that does nothing */
  int64_t n, k;       /* outputs and inputs: multiples of 8 */
  int64_t group; /* rows that share scale and zero point: a multiple of 32 that divides k, or FWHT_WHOLE */
  int32_t dtype; /* FWHT_F16 or FWHT_BF16, of x and y */
  int32_t zero_points; /* fwht_zero_points */
  int64_t rotation;    /* order of the matrix H / sqrt(order) by which blocks of x are multiplied; 0: none */
  uint32_t flags;      /* FWHT_PROGRAMMATIC_LAUNCH, FWHT_ACT_ORDER */
  int32_t threads;     /* as in fwht_problem */
  /* Instead of `rotation`: the text of any operator, "28x512+signs", which multiplies blocks of x, over the square
   * root of its order; NULL or "": none. */
  const char* rotation_op;
} fwht_linear_problem;

#define FWHT_LINEAR_PROBLEM_INIT \
  { sizeof(fwht_linear_problem), 0, 0, 0, 128, FWHT_F16, FWHT_ZERO_POINTS_V1, 0, 0u, 0, NULL }

/* The tensors of a file, in host memory. */
typedef struct fwht_gptq_weights {
  size_t struct_size;      /* sizeof(fwht_gptq_weights) */
  const uint32_t* qweight; /* [k / 8][n]: nibble i of word (r, c) is q of row 8 r + i, column c */
  const uint32_t*
      qzeros; /* [groups][n / 8]: nibble j of word (g, c) is of column 8 c + j; NULL if symmetric */
  const uint16_t* scales; /* [groups][n]: fp16 */
  const int32_t* g_idx;   /* [k]: the group of each row; NULL: row / group */
  /* Of a rotation whose operator has them, as in fwht_operands: a bit an element, in words of 32; and the entries of
   * dense factors in the dtype of x. Else NULL. */
  const uint32_t* signs;
  const void* dense;
} fwht_gptq_weights;

#define FWHT_GPTQ_WEIGHTS_INIT \
  { sizeof(fwht_gptq_weights), NULL, NULL, NULL, NULL, NULL, NULL }

typedef struct fwht_linear_plan fwht_linear_plan; /* opaque */

FWHT_API size_t fwht_linear_variant_count(void);
FWHT_API fwht_status fwht_get_linear_variant(size_t index, fwht_variant* variant);

/* As fwht_supports. */
FWHT_API fwht_status fwht_linear_supports(const fwht_linear_problem* problem, const char* variant,
                                          int32_t device);

/* As fwht_plan_create. Two plans of one variant other than "auto" whose problems differ only in m and flags read the
 * same packed weights. */
FWHT_API fwht_status fwht_linear_plan_create(const fwht_linear_problem* problem, const char* variant,
                                             int32_t device, fwht_linear_plan** plan);
/* What was decided, as one JSON object: variant, problem (its text form), device, alignment (of every pointer),
 * packed_bytes, workspace_bytes, promises (deterministic, batch_invariant, row_isolation), settings. Valid as long as
 * the plan. */
FWHT_API const char* fwht_linear_plan_info_json(const fwht_linear_plan* plan);
/* The weights as the plan reads them, into host memory of exactly `packed_bytes`; copy it to the device. Nothing is
 * written unless the status is FWHT_OK. */
FWHT_API fwht_status fwht_linear_plan_pack(const fwht_linear_plan* plan, const fwht_gptq_weights* weights,
                                           void* packed, int64_t packed_bytes);
/* What an execution works in beside x, the weights and y; 0 for none, and for a plan that is NULL. */
FWHT_API int64_t fwht_linear_plan_workspace_bytes(const fwht_linear_plan* plan);
/* x[m][k] and y[m][n], contiguous, the packed weights and a workspace of at least that many bytes, in the memory of the
 * plan's device. On a device it only enqueues and allocates nothing: one plan serves every stream, thread and graph.
 * Executions that may run at the same time have a workspace each; what is in it before and after means nothing. */
FWHT_API fwht_status fwht_linear_plan_execute(const fwht_linear_plan* plan, const void* x, const void* packed,
                                              void* y, void* workspace, int64_t workspace_bytes,
                                              void* stream);
/* NULL is allowed. Graphs captured from the plan may be launched afterwards. */
FWHT_API void fwht_linear_plan_destroy(fwht_linear_plan* plan);

/* For kernels that want rows in the order of their groups: the [k / 8][n] words with their rows sorted, and the order
 * [k], so that x[:, order] meets them. The tensors are then those of a problem without g_idx. */
FWHT_API fwht_status fwht_gptq_sort_rows(const fwht_linear_problem* problem, const fwht_gptq_weights* weights,
                                         uint32_t* qweight, int32_t* order);

#ifdef __cplusplus
}
#endif
#endif /* FWHT_H */
