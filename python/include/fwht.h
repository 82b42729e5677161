/* C ABI of fwht: y_r = scale * Op x_r for `rows` independent rows x_r of n elements each.
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
  FWHT_F64 = 3 /* host memory only */
} fwht_dtype;

typedef enum fwht_placement { FWHT_IN_PLACE = 0, FWHT_OUT_OF_PLACE = 1 } fwht_placement;

/* Bits of fwht_problem.flags. */
#define FWHT_ORTHONORMAL 1u         /* the scale is 1/sqrt(n), whatever the field `scale` says */
#define FWHT_PROGRAMMATIC_LAUNCH 2u /* programmatic dependent launch (CUDA Programming Guide) */

/* What is asked for. Zero in a field after `scale` is the ordinary choice. */
typedef struct fwht_problem {
  size_t struct_size; /* sizeof(fwht_problem) */
  int64_t n;          /* row length in elements; Op is H_n in natural order unless op_text names another */
  int64_t rows;       /* 0 is a valid problem that does nothing */
  double scale;       /* applied once, in fp32 (fp64 for FWHT_F64); 1.0 is the bare transform */
  int32_t dtype;      /* fwht_dtype of input and output */
  int32_t placement;  /* fwht_placement: in place, `in` and `out` are the same pointer */
  int64_t in_stride;  /* elements between row starts of the input; 0: n */
  int64_t out_stride; /* the same of the output; 0: n out of place, in_stride in place */
  uint32_t flags;
  int32_t threads; /* most threads of a host variant; 0: all that the process may use */
  const char*
      op_text; /* operator such as "28x512" instead of H_n, and then n must be 0 or its order; NULL: H_n */
  const char* encoding; /* quantized output such as "e4m3:row" (docs/quantize.md), out of place; NULL: none */
} fwht_problem;

#define FWHT_PROBLEM_INIT \
  { sizeof(fwht_problem), 0, 0, 1.0, FWHT_F32, FWHT_IN_PLACE, 0, 0, 0u, 0, NULL, NULL }

/* What a transform reads and writes. Members that the problem does not need are NULL or 0. All memory is that of
 * `device`. Signs are one bit per element of a row: bit i mod 8 of byte i / 8 is set for -1, in whole words of 32
 * bits. Dense factors are their entries in the input's dtype, row-major, one factor behind the other, none
 * transposed. fwht_encoding_info_json says how many bytes `scales` needs. */
typedef struct fwht_operands {
  size_t struct_size; /* sizeof(fwht_operands) */
  const void* in;
  void* out;            /* rows, or the codes of the encoding */
  const void* signs;    /* of an operator with signs */
  const void* dense;    /* of an operator with dense factors */
  void* scales;         /* of the encoding */
  int64_t scales_bytes; /* room behind `scales`; 0: not said */
  double tensor_scale;  /* where the encoding asks for a number of the whole tensor; 0: not given */
} fwht_operands;

#define FWHT_OPERANDS_INIT \
  { sizeof(fwht_operands), NULL, NULL, NULL, NULL, NULL, 0, 0.0 }

typedef struct fwht_plan fwht_plan; /* what a variant decided for one problem on one device; opaque */

FWHT_API int32_t fwht_abi_version(void);
FWHT_API const char* fwht_version(void);

/* The message of this thread's last call that did not return FWHT_OK; "" when there is none. */
FWHT_API const char* fwht_last_error(void);

/* What was built, as one JSON object: version, commit, dirty, sources_hash, build_type, cxx, cxx_flags, cuda,
 * cuda_flags, abi_version. Where CUDA is missing, `cuda` says why. */
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

/* One call. The first one for a problem makes its plan (up to a millisecond), which is kept until
 * fwht_clear_plans(). `stream` is a cudaStream_t (NULL: the default stream) and ignored on the host, where
 * the work is done when the call returns. On a device it is enqueued only, and the calling thread's current
 * device is as before. May be called while the stream is captured. in == out exactly for FWHT_IN_PLACE; out
 * of place the spans must not overlap. */
FWHT_API fwht_status fwht_transform(const fwht_problem* problem, const char* variant, const void* in,
                                    void* out, int32_t device, void* stream);

/* The same for problems with signs, dense factors or an encoding. */
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
/* What was decided, as one JSON object: variant, problem (its text form), device, alignment, promises
 * (batch_invariant, layout_invariant, row_isolation), roundings, settings. Valid as long as the plan. */
FWHT_API const char* fwht_plan_info_json(const fwht_plan* plan);
/* NULL is allowed. No launch of the plan may be pending, and no graph captured from it may be launched again.
 */
FWHT_API void fwht_plan_destroy(fwht_plan* plan);

#ifdef __cplusplus
}
#endif
#endif /* FWHT_H */
