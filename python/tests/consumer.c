/* The C interface from C11: header, statuses, messages, struct versions, a transform worked out by hand.
   Compiled with -std=c11 -pedantic -Wall -Wextra -Werror. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fwht.h"

static int failures = 0;

static void expect(int condition, const char* what) {
  if (condition) return;
  ++failures;
  printf("WRONG: %s (last error: %s)\n", what, fwht_last_error());
}

static fwht_problem problem_of(int64_t n, int64_t rows) {
  fwht_problem problem = FWHT_PROBLEM_INIT;
  problem.n = n;
  problem.rows = rows;
  problem.scale = 1.0;
  problem.placement = FWHT_OUT_OF_PLACE;
  return problem;
}

/* H_4 (1 2 3 4) = (10 -2 -4 0); column 2 of H_4 is (1 1 -1 -1). */
static const float kIn[8] = {1, 2, 3, 4, 0, 0, 5, 0};
static const float kOut[8] = {10, -2, -4, 0, 5, 5, -5, -5};

static void transforms(void) {
  float out[8];
  fwht_problem problem = problem_of(4, 2);
  memset(out, 255, sizeof out);
  expect(fwht_transform(&problem, NULL, kIn, out, FWHT_HOST, NULL) == FWHT_OK, "out of place");
  expect(memcmp(out, kOut, sizeof out) == 0, "out of place: values");

  memset(out, 255, sizeof out);
  expect(fwht_transform(&problem, NULL, kIn, out, FWHT_DEVICE_OF_POINTER, NULL) == FWHT_OK,
         "device of the pointer");
  expect(memcmp(out, kOut, sizeof out) == 0, "device of the pointer: values");

  problem.placement = FWHT_IN_PLACE;
  memcpy(out, kIn, sizeof out);
  expect(fwht_transform(&problem, "cpu", out, out, FWHT_HOST, NULL) == FWHT_OK, "in place, by name");
  expect(memcmp(out, kOut, sizeof out) == 0, "in place: values");

  problem.op_text = "4";
  problem.n = 0;
  memcpy(out, kIn, sizeof out);
  expect(fwht_transform(&problem, NULL, out, out, FWHT_HOST, NULL) == FWHT_OK, "operator as text");
  expect(memcmp(out, kOut, sizeof out) == 0, "operator as text: values");

  problem = problem_of(4, 1);
  problem.flags = FWHT_ORTHONORMAL;
  expect(fwht_transform(&problem, NULL, kIn, out, FWHT_HOST, NULL) == FWHT_OK, "orthonormal");
  expect(out[0] == 5.0f && out[1] == -1.0f, "orthonormal: values");

  problem.flags = 0;
  problem.scale = 0;
  expect(fwht_transform(&problem, NULL, kIn, out, FWHT_HOST, NULL) == FWHT_OK, "default scale");
  expect(out[0] == 5.0f && out[1] == -1.0f, "default scale: values");

  problem.flags = FWHT_SCALE_AS_GIVEN;
  expect(fwht_transform(&problem, NULL, kIn, out, FWHT_HOST, NULL) == FWHT_OK, "scale 0");
  expect(out[0] == 0.0f && out[1] == 0.0f, "scale 0: values");
}

/* H_4 x in sequency order, from which the inverse comes back; and along the middle dimension of [1][4][2]. */
static void arrangements(void) {
  static const float spectrum[4] = {10, -4, 0, -2};
  static const float pairs[8] = {1, 0, 2, 0, 3, 5, 4, 0}, sums[8] = {10, 5, -2, 5, -4, -5, 0, -5};
  float out[8];
  fwht_problem problem = problem_of(4, 1);
  problem.out_ordering = FWHT_SEQUENCY;
  expect(fwht_transform(&problem, NULL, kIn, out, FWHT_HOST, NULL) == FWHT_OK, "sequency");
  expect(memcmp(out, spectrum, sizeof spectrum) == 0, "sequency: values");
  problem.placement = FWHT_IN_PLACE;
  expect(fwht_transform(&problem, NULL, out, out, FWHT_HOST, NULL) == FWHT_BAD_REQUEST, "sequency in place");

  problem = problem_of(4, 1);
  problem.in_ordering = FWHT_SEQUENCY;
  problem.scale = 0.25;
  expect(fwht_transform(&problem, NULL, spectrum, out, FWHT_HOST, NULL) == FWHT_OK, "from sequency");
  expect(memcmp(out, kIn, 4 * sizeof *out) == 0, "from sequency: values");

  problem = problem_of(4, 2);
  problem.inner = 2;
  expect(fwht_transform(&problem, NULL, pairs, out, FWHT_HOST, NULL) == FWHT_OK, "an inner dimension");
  expect(memcmp(out, sums, sizeof sums) == 0, "an inner dimension: values");
  problem.inner = INT64_MAX;
  expect(fwht_supports(&problem, NULL, FWHT_HOST) == FWHT_BAD_REQUEST,
         "an inner dimension that does not fit");
}

/* AND of two variables is bent: its spectrum is (2 2 2 -2). */
static void spectra(void) {
  static const int8_t bits[4] = {0, 0, 0, 1}, zeros_as_signs[4] = {1, 1, 0, 1};
  static const int32_t bent[4] = {2, 2, 2, -2}, integers[4] = {INT32_MIN, -1, 0, 0};
  static const double a[4] = {1, 2, 0, 0}, b[4] = {0, 0, 1, 0}, c[4] = {0, 0, 1, 2};
  int32_t w[4], values[2];
  int64_t places[2], rows[3], numbers[4], count = 0;
  uint32_t signs[2], table[3];
  double out[4], sketch[2];
  const void* both[2];
  fwht_spectrum_summary summary;
  fwht_problem problem = problem_of(4, 1);
  expect(fwht_walsh_spectrum(FWHT_FUNCTION_BITS, bits, 2, 1, w, 0) == FWHT_OK, "spectrum");
  expect(memcmp(w, bent, sizeof w) == 0, "spectrum: values");
  expect(fwht_walsh_spectrum(FWHT_FUNCTION_SIGNS, zeros_as_signs, 2, 1, w, 0) == FWHT_BAD_REQUEST &&
             strstr(fwht_last_error(), "element 2 is 0") != NULL,
         "0 where 1 and -1 are asked for");
  expect(fwht_walsh_spectrum_on(FWHT_FUNCTION_PACKED, bits, 2, 1, w, 0, NULL) == FWHT_BAD_REQUEST &&
             strstr(fwht_last_error(), "variables=2 must be between 3 and 30") != NULL,
         "a spectrum of less than a byte");
  expect(fwht_walsh_summaries(FWHT_FUNCTION_BITS, bits, 2, 1, numbers, 1) == FWHT_OK && numbers[0] == 2 &&
             numbers[1] == 0 && numbers[2] == 1 && numbers[3] == 16,
         "summaries");
  expect(fwht_walsh_summaries_workspace(28, 1, &count) == FWHT_OK && count == 1 << 30, "their workspace");
  summary.struct_size = sizeof summary;
  expect(fwht_walsh_summary(bent, 2, &summary) == FWHT_OK && summary.largest == 2 && summary.place == 0 &&
             summary.nonlinearity == 1 && summary.sum_of_squares == 16,
         "summary");
  expect(fwht_walsh_largest(bent, 2, 2, places, values) == FWHT_OK && places[1] == 1 && values[1] == 2,
         "largest");
  problem.dtype = FWHT_I32;
  expect(fwht_count_overflows(&problem, integers, &count) == FWHT_OK && count == 2, "overflows");
  expect(fwht_dyadic_convolution(FWHT_F64, 4, 1, a, b, out, 1) == FWHT_OK && memcmp(out, c, sizeof c) == 0,
         "convolution");
  expect(fwht_random_signs(4, 0, signs) == FWHT_OK && signs[0] == 5, "random signs");
  expect(fwht_random_rows(4, 3, 1, rows) == FWHT_OK && rows[0] < rows[1] && rows[1] < rows[2], "random rows");
  both[0] = both[1] = signs; /* D_5 on 4 elements: -1 1 -1 1 */
  expect(fwht_rounds(FWHT_F64, 4, 1, 2, both, a, out, 1) == FWHT_OK && out[0] == -2 && out[1] == 1 &&
             out[3] == 0,
         "rounds");
  expect(fwht_rounds_on(FWHT_F32, 32, 1, 0, 1, NULL, NULL, NULL, 0, NULL) == FWHT_BAD_REQUEST &&
             strstr(fwht_last_error(), "n=32"),
         "rounds of short rows on a device");
  expect(fwht_sketch(FWHT_F64, 3, 2, 0, 1, a, sketch, 1) == FWHT_OK, "sketch");
  expect(fwht_sketch(FWHT_F16, 3, 2, 0, 1, a, sketch, 1) == FWHT_BAD_REQUEST, "sketch of fp16");
  expect(fwht_sketch_table(3, 3, 1, table) == FWHT_OK && table[1] == 0 && table[2] < 16 &&
             table[0] == (uint32_t)(1 << rows[0] | 1 << rows[1] | 1 << rows[2]),
         "the table of a sketch");
  expect(fwht_sketch_on(FWHT_F64, 3, 9, 0, 1, table, a, sketch, NULL, 0, 0, NULL) == FWHT_BAD_REQUEST &&
             strstr(fwht_last_error(), "rows=9 must be between 1 and 4") != NULL,
         "a sketch of too many rows on a device");
  expect(fwht_sketch_workspace(FWHT_F16, 3, 2, 1, 0, &count) == FWHT_BAD_REQUEST, "its workspace in fp16");
  expect(fwht_rounds(17, 4, 1, 2, both, a, out, 1) == FWHT_BAD_REQUEST, "unknown dtype");
}

static void strides(void) {
  float in[10], out[9];
  int i;
  fwht_problem problem = problem_of(4, 2);
  problem.in_stride = 6;
  problem.out_stride = 5;
  for (i = 0; i < 10; ++i)
    in[i] = i < 4 ? kIn[i] : i < 6 ? 99.0f : kIn[i - 2];
  for (i = 0; i < 9; ++i)
    out[i] = 77.0f;
  expect(fwht_transform(&problem, NULL, in, out, FWHT_HOST, NULL) == FWHT_OK, "two strides");
  expect(memcmp(out, kOut, 4 * sizeof *out) == 0 && memcmp(out + 5, kOut + 4, 4 * sizeof *out) == 0,
         "two strides: values");
  expect(out[4] == 77.0f, "nothing between the rows is written");
}

static void plans(void) {
  float out[8];
  fwht_plan* plan = NULL;
  fwht_problem problem = problem_of(4, 2);
  expect(fwht_plan_create(&problem, NULL, FWHT_HOST, &plan) == FWHT_OK && plan != NULL, "plan");
  expect(strstr(fwht_plan_info_json(plan), "\"variant\": \"cpu\"") != NULL, "plan: info");
  expect(fwht_plan_execute(plan, kIn, out, NULL) == FWHT_OK, "plan: execute");
  expect(memcmp(out, kOut, sizeof out) == 0, "plan: values");
  expect(fwht_plan_execute(plan, kIn, NULL, NULL) == FWHT_BAD_REQUEST, "plan: null pointer");
  expect(strstr(fwht_last_error(), "out is a null pointer") != NULL, "plan: message");
  fwht_plan_destroy(plan);
  fwht_plan_destroy(NULL);
  expect(fwht_plan_kept(&problem, NULL, FWHT_HOST, &plan) == FWHT_OK && plan != NULL, "kept plan");
  memset(out, 0, sizeof out);
  expect(fwht_plan_execute(plan, kIn, out, NULL) == FWHT_OK, "kept plan: execute");
  expect(memcmp(out, kOut, sizeof out) == 0, "kept plan: values");
  fwht_plan_destroy(plan);
  expect(fwht_plan_kept(&problem, NULL, FWHT_HOST, NULL) == FWHT_BAD_REQUEST, "kept plan: null pointer");
  problem.n = 6;
  expect(fwht_plan_create(&problem, NULL, FWHT_HOST, &plan) == FWHT_UNSUPPORTED && plan == NULL,
         "no plan of n=6");
  plan = (fwht_plan*)out;
  expect(fwht_plan_create(NULL, NULL, FWHT_HOST, &plan) == FWHT_BAD_REQUEST && plan == NULL,
         "no plan of no problem");
}

static void refusals(void) {
  float out[8];
  fwht_problem problem = problem_of(6, 1);
  expect(fwht_supports(&problem, NULL, FWHT_HOST) == FWHT_UNSUPPORTED, "n=6");
  expect(strstr(fwht_last_error(), "n=6 must be a power of two between 2 and") != NULL, "n=6: message");
  expect(fwht_transform(&problem, NULL, kIn, out, FWHT_HOST, NULL) == FWHT_UNSUPPORTED, "transform of n=6");

  problem = problem_of(4, -1);
  expect(fwht_supports(&problem, NULL, FWHT_HOST) == FWHT_BAD_REQUEST, "rows=-1");
  problem = problem_of(4, 1);
  problem.scale = INFINITY;
  expect(fwht_supports(&problem, NULL, FWHT_HOST) == FWHT_BAD_REQUEST, "infinite scale");
  problem = problem_of(4, 1);
  problem.dtype = 17;
  expect(fwht_supports(&problem, NULL, FWHT_HOST) == FWHT_BAD_REQUEST, "unknown dtype");
  problem = problem_of(4, 1);
  problem.flags = 1u << 30;
  expect(fwht_supports(&problem, NULL, FWHT_HOST) == FWHT_BAD_REQUEST, "unknown flag");
  problem = problem_of(4, 1);
  problem.encoding = "e4m4:row";
  expect(fwht_supports(&problem, NULL, FWHT_HOST) == FWHT_BAD_REQUEST, "unknown encoding");
  problem.encoding = "e4m3:row";
  problem.placement = FWHT_IN_PLACE;
  expect(fwht_supports(&problem, NULL, FWHT_HOST) == FWHT_BAD_REQUEST, "an encoding in place");
  problem = problem_of(8, 1);
  problem.op_text = "4";
  expect(fwht_supports(&problem, NULL, FWHT_HOST) == FWHT_BAD_REQUEST, "n and operator disagree");
  problem = problem_of(0, 1);
  expect(fwht_supports(&problem, NULL, FWHT_HOST) == FWHT_BAD_REQUEST &&
             strcmp(fwht_last_error(), "n=0 must be at least 1") == 0,
         "n=0");
  static char long_text[1 << 20];
  memset(long_text, 'x', sizeof long_text - 1);
  problem.op_text = long_text;
  expect(fwht_supports(&problem, NULL, FWHT_HOST) == FWHT_BAD_REQUEST && strlen(fwht_last_error()) < 2000 &&
             strncmp(fwht_last_error(), "operator 'xxx", 13) == 0,
         "a megabyte of operator");
  problem = problem_of(4, 1);
  expect(fwht_supports(&problem, "no_such_variant", FWHT_HOST) == FWHT_BAD_REQUEST, "unknown variant");
  expect(strstr(fwht_last_error(), "no_such_variant") != NULL, "unknown variant: message");
  expect(fwht_supports(&problem, "auto", FWHT_HOST) == FWHT_UNSUPPORTED, "device variant on the host");
  expect(fwht_supports(&problem, NULL, -7) == FWHT_BAD_REQUEST, "device -7");
  expect(fwht_supports(NULL, NULL, FWHT_HOST) == FWHT_BAD_REQUEST, "null problem");
  if (fwht_device_count() == 0) {
    expect(fwht_supports(&problem, NULL, 0) == FWHT_UNSUPPORTED, "supports without CUDA");
    expect(fwht_transform(&problem, NULL, kIn, out, 0, NULL) == FWHT_FAILED, "transform without CUDA");
    expect(strstr(fwht_last_error(), "CUDA") != NULL, "without CUDA: message");
  }
}

/* (1 1; 1 -1) (3, -5) = (-2, 8): signs (1, -1) first, then a dense factor. */
static void operators(void) {
  static const float x[2] = {3, 5}, dense[4] = {1, 1, 1, -1};
  static const uint8_t signs[4] = {2, 0, 0, 0};
  _Alignas(256) static unsigned char scratch[256];
  float out[2] = {0, 0};
  fwht_problem problem = problem_of(0, 1);
  fwht_operands operands = FWHT_OPERANDS_INIT;
  fwht_plan* plan = NULL;
  problem.op_text = "d2+signs";
  operands.in = x;
  operands.out = out;
  operands.signs = signs;
  operands.dense = dense;
  expect(fwht_transform_operands(&problem, NULL, &operands, FWHT_HOST, NULL) == FWHT_OK, "operands");
  expect(out[0] == -2 && out[1] == 8, "operands: values");
  out[0] = out[1] = 0;
  expect(fwht_plan_create(&problem, NULL, FWHT_HOST, &plan) == FWHT_OK, "plan with operands");
  expect(fwht_plan_execute_operands(plan, &operands, NULL) == FWHT_OK, "execute with operands");
  expect(out[0] == -2 && out[1] == 8, "plan with operands: values");
  expect(strstr(fwht_plan_info_json(plan), "\"scratch_bytes\": 0") != NULL, "scratch of a plan");
  operands.scratch_bytes = 256;
  expect(fwht_plan_execute_operands(plan, &operands, NULL) == FWHT_BAD_REQUEST &&
             strstr(fwht_last_error(), "scratch_bytes=256 behind no scratch"),
         "no scratch");
  operands.scratch = scratch;
  out[0] = out[1] = 0;
  expect(fwht_plan_execute_operands(plan, &operands, NULL) == FWHT_OK && out[1] == 8, "scratch in vain");
  operands.scratch_bytes = -1;
  expect(fwht_plan_execute_operands(plan, &operands, NULL) == FWHT_BAD_REQUEST, "negative scratch");
  expect(fwht_transform_operands(&problem, NULL, &operands, FWHT_HOST, NULL) == FWHT_BAD_REQUEST &&
             strstr(fwht_last_error(), "scratch is given"),
         "scratch of a transform");
  operands.scratch = NULL;
  operands.scratch_bytes = 0;
  expect(fwht_plan_execute(plan, x, out, NULL) == FWHT_BAD_REQUEST, "execute without operands");
  fwht_plan_destroy(plan);
  operands.signs = NULL;
  expect(fwht_transform_operands(&problem, NULL, &operands, FWHT_HOST, NULL) == FWHT_BAD_REQUEST, "no signs");
  operands.signs = signs;
  operands.scales_bytes = -1;
  expect(fwht_transform_operands(&problem, NULL, &operands, FWHT_HOST, NULL) == FWHT_BAD_REQUEST,
         "negative room");
  expect(fwht_transform_operands(&problem, NULL, NULL, FWHT_HOST, NULL) == FWHT_BAD_REQUEST, "null operands");

  expect(strcmp(fwht_operator_for(14336), "28x512") == 0, "operator of 14336");
  expect(fwht_operator_for(13697) == NULL && strstr(fwht_last_error(), "13696") != NULL, "operator of 13697");
  expect(strcmp(fwht_operator_transposed("d3x4+signs"), "signs+d3tx4") == 0, "transposed");
  expect(fwht_operator_transposed("28y512") == NULL && fwht_operator_info_json(NULL) == NULL, "no operator");
  expect(strstr(fwht_operator_info_json("d3x4+signs"), "\"dense_entries\": 9") != NULL, "operator info");
  expect(strstr(fwht_encoding_info_json("e4m3:row", 64, 10), "\"scale_bytes\": 40") != NULL, "encoding info");
  expect(fwht_encoding_info_json("e4m4", 64, 10) == NULL && fwht_encoding_info_json("int4:row", 3, 1) == NULL,
         "no encoding");
  {
    const int64_t large = (int64_t)1 << 62;
    const int64_t sizes[][2] = {{0, 1},     {-8, 1}, {64, -1}, {large, large}, {64, (int64_t)1 << 60},
                                {64, large}};
    size_t i;
    for (i = 0; i < sizeof sizes / sizeof *sizes; ++i)
      expect(fwht_encoding_info_json("mxfp8", sizes[i][0], sizes[i][1]) == NULL,
             "encoding of sizes that wrap");
  }
  expect(fwht_operator_info_json("d4294967296") == NULL, "more dense entries than 64 bits count");
  expect(fwht_encoding_info_json("\xff\xed\xa0\x80\xc3\xa4", 64, 1) == NULL &&
             strstr(fwht_last_error(), "'????\xc3\xa4'") != NULL,
         "messages are UTF-8");
}

/* Rows of twos: mean square 4, so ones, times the weight 2, and (2, 2, ...) H_8 = (16, 0, ...). Its codes go to the
 * second place of a page of two rows, and its scale 16 / 127 behind the codes of both. */
static void preparations(void) {
  _Alignas(16) static const float x[8] = {2, 2, 2, 2, 2, 2, 2, 2};
  static const int64_t slots[1] = {1};
  _Alignas(16) unsigned char page[24];
  float scale;
  fwht_problem problem = problem_of(8, 1);
  fwht_operands operands = FWHT_OPERANDS_INIT;
  memset(page, 9, sizeof page);
  problem.encoding = "int8:row";
  problem.preparation = "rms/page2x1";
  operands.in = x;
  operands.out = page;
  operands.weight = x;
  operands.slots = slots;
  expect(fwht_transform_operands(&problem, NULL, &operands, FWHT_HOST, NULL) == FWHT_OK, "prepared");
  memcpy(&scale, page + 20, sizeof scale);
  expect(page[7] == 9 && page[8] == 127 && page[9] == 0 && page[16] == 9 && scale == 16.0f / 127.0f,
         "prepared: values");
  operands.slots = NULL;
  expect(fwht_transform_operands(&problem, NULL, &operands, FWHT_HOST, NULL) == FWHT_BAD_REQUEST &&
             strstr(fwht_last_error(), "slots is a null pointer"),
         "no slots");
  problem.preparation = "rms/page2";
  expect(fwht_supports(&problem, NULL, FWHT_HOST) == FWHT_BAD_REQUEST, "half a word");
  problem.preparation = "rms/signs";
  expect(fwht_supports(&problem, NULL, FWHT_HOST) == FWHT_BAD_REQUEST && strstr(fwht_last_error(), "'signs'"),
         "an unknown word");
}

/* (2, 2, ...) H_8 = (16, 0, ...) in steps of 1/4: the code of 64 in e4m3 is 2^6, 0x68. */
static void scales_in_memory(void) {
  _Alignas(16) static const float x[8] = {2, 2, 2, 2, 2, 2, 2, 2};
  static const float steps[2] = {0.25f, 1.0f};
  _Alignas(16) unsigned char codes[8];
  fwht_problem problem = problem_of(8, 1);
  fwht_operands operands = FWHT_OPERANDS_INIT;
  problem.encoding = "e4m3:tensor,vllm_static";
  operands.in = x;
  operands.out = codes;
  operands.tensor_scale_at = steps;
  expect(fwht_transform_operands(&problem, NULL, &operands, FWHT_HOST, NULL) == FWHT_OK, "scale in memory");
  expect(codes[0] == 0x68 && codes[1] == 0, "scale in memory: values");
  operands.tensor_scale = 1.0;
  expect(fwht_transform_operands(&problem, NULL, &operands, FWHT_HOST, NULL) == FWHT_BAD_REQUEST &&
             strstr(fwht_last_error(), "are both given"),
         "two scales");
  operands.tensor_scale_at = NULL;
  operands.tensor_scale = 0.25;
  expect(fwht_transform_operands(&problem, NULL, &operands, FWHT_HOST, NULL) == FWHT_OK, "scale by value");
  operands.tensor_scale = 0.0;
  expect(fwht_transform_operands(&problem, NULL, &operands, FWHT_HOST, NULL) == FWHT_BAD_REQUEST &&
             strstr(fwht_last_error(), "needs a number of the whole tensor"),
         "no scale");
  operands.tensor_scale = 1e-50;
  expect(fwht_transform_operands(&problem, NULL, &operands, FWHT_HOST, NULL) == FWHT_BAD_REQUEST &&
             strstr(fwht_last_error(), "tensor_scale=1e-50"),
         "a scale that fp32 does not have");
  operands.tensor_scale = 0.0;
  operands.tensor_scale_at = (const float*)((const char*)steps + 2);
  expect(fwht_transform_operands(&problem, NULL, &operands, FWHT_HOST, NULL) == FWHT_BAD_REQUEST &&
             strstr(fwht_last_error(), "must be aligned to 4 bytes"),
         "a scale between two numbers");
  operands.tensor_scale_at = steps;
  problem.encoding = "e4m3:row";
  operands.scales = codes;
  expect(fwht_transform_operands(&problem, NULL, &operands, FWHT_HOST, NULL) == FWHT_BAD_REQUEST &&
             strstr(fwht_last_error(), "tensor_scale_at is given, but"),
         "a scale in vain");
}

/* One output of W = s (q - z) with s = 1/2, q = 9 and z = 1, for x of ones: 32 * 4. */
static void linear_layers(void) {
  uint32_t qweight[4 * 8], qzeros[1] = {0}, sorted[4 * 8];
  uint16_t scales[8];
  _Alignas(16) uint16_t x[32], y[8];
  _Alignas(16) unsigned char packed[1024], workspace[1024];
  const int64_t room = (int64_t)sizeof workspace;
  int32_t g_idx[32], order[32];
  fwht_linear_plan* plan = NULL;
  fwht_variant variant = {sizeof variant, NULL, NULL, 0};
  fwht_linear_problem problem = FWHT_LINEAR_PROBLEM_INIT;
  fwht_gptq_weights weights = FWHT_GPTQ_WEIGHTS_INIT;
  int i;
  for (i = 0; i < 32; ++i) {
    qweight[i] = 0x99999999u;
    x[i] = 0x3C00;
    g_idx[i] = 0;
  }
  for (i = 0; i < 8; ++i)
    scales[i] = 0x3800;
  problem.m = 1;
  problem.n = 8;
  problem.k = 32;
  problem.group = FWHT_WHOLE;
  weights.qweight = qweight;
  weights.qzeros = qzeros;
  weights.scales = scales;
  expect(fwht_linear_supports(&problem, NULL, FWHT_HOST) == FWHT_OK, "linear: supported");
  expect(fwht_linear_supports(&problem, "w4a16_pipelined", FWHT_HOST) == FWHT_UNSUPPORTED,
         "linear: the host's memory");
  expect(fwht_linear_plan_create(&problem, NULL, FWHT_HOST, &plan) == FWHT_OK && plan != NULL,
         "linear: plan");
  expect(strstr(fwht_linear_plan_info_json(plan), "\"variant\": \"cpu\"") != NULL, "linear: info");
  expect(fwht_linear_plan_pack(plan, &weights, packed, 7) == FWHT_BAD_REQUEST &&
             strstr(fwht_last_error(), "packed_bytes=7"),
         "linear: room for the packed weights");
  expect(fwht_linear_plan_pack(plan, &weights, packed, 768) == FWHT_OK, "linear: pack");
  expect(fwht_linear_plan_workspace_bytes(plan) > 0 && fwht_linear_plan_workspace_bytes(plan) <= room &&
             fwht_linear_plan_workspace_bytes(NULL) == 0,
         "linear: size of the workspace");
  y[0] = 7;
  expect(fwht_linear_plan_execute(plan, x, packed, y, NULL, room, NULL) == FWHT_BAD_REQUEST &&
             strstr(fwht_last_error(), "workspace is a null pointer; the plan needs"),
         "linear: no workspace");
  expect(fwht_linear_plan_execute(plan, x, packed, y, workspace, 3, NULL) == FWHT_BAD_REQUEST &&
             strstr(fwht_last_error(), "workspace_bytes=3 must be at least") && y[0] == 7,
         "linear: a small workspace");
  expect(fwht_linear_plan_execute(plan, x, packed, y, workspace, room, NULL) == FWHT_OK && y[0] == 0x5800 &&
             y[7] == 0x5800,
         "linear: 128");
  expect(fwht_linear_plan_execute(plan, x + 1, packed, y, workspace, room, NULL) == FWHT_BAD_REQUEST,
         "linear: alignment of x");
  fwht_linear_plan_destroy(plan);
  fwht_linear_plan_destroy(NULL);
  weights.g_idx = g_idx;
  expect(fwht_gptq_sort_rows(&problem, &weights, sorted, order) == FWHT_OK && order[31] == 31 &&
             memcmp(sorted, qweight, sizeof sorted) == 0,
         "linear: rows in order stay");
  g_idx[3] = 1;
  expect(fwht_gptq_sort_rows(&problem, &weights, sorted, order) == FWHT_BAD_REQUEST,
         "linear: a group that is none");
  weights.qweight = NULL;
  expect(fwht_gptq_sort_rows(&problem, &weights, sorted, order) == FWHT_BAD_REQUEST, "linear: no words");
  problem.zero_points = 3;
  expect(fwht_linear_supports(&problem, NULL, FWHT_HOST) == FWHT_BAD_REQUEST, "linear: zero points");
  expect(fwht_linear_variant_count() > 1 && fwht_get_linear_variant(0, &variant) == FWHT_OK &&
             !variant.on_device,
         "linear: variants");
  expect(fwht_get_linear_variant(fwht_linear_variant_count(), &variant) == FWHT_BAD_REQUEST, "linear: index");
}

/* A caller compiled against an older header passes less, one against a newer header more. */
static void versions(void) {
  struct newer {
    fwht_problem known;
    int64_t unknown;
  } newer;
  fwht_plan* plan = NULL;
  fwht_problem problem = problem_of(4, 1);
  problem.in_stride = 3; /* below n: refused where it is read */
  expect(fwht_supports(&problem, NULL, FWHT_HOST) == FWHT_BAD_REQUEST, "stride below n");
  problem.struct_size = offsetof(fwht_problem, in_stride);
  expect(fwht_supports(&problem, NULL, FWHT_HOST) == FWHT_OK, "fields beyond an older struct are not read");
  problem.struct_size = 4;
  expect(fwht_supports(&problem, NULL, FWHT_HOST) == FWHT_BAD_REQUEST, "size too small");
  problem.struct_size = 1u << 20;
  expect(fwht_supports(&problem, NULL, FWHT_HOST) == FWHT_BAD_REQUEST, "size that no struct has");
  memset(&newer, 0, sizeof newer);
  newer.known = problem_of(4, 1);
  newer.known.struct_size = sizeof newer;
  expect(fwht_supports(&newer.known, NULL, FWHT_HOST) == FWHT_OK,
         "newer struct, nothing asked of the new field");
  expect(fwht_plan_create(&newer.known, NULL, FWHT_HOST, &plan) == FWHT_OK, "a plan of a newer struct");
  fwht_plan_destroy(plan);
  newer.unknown = 1;
  expect(fwht_supports(&newer.known, NULL, FWHT_HOST) == FWHT_BAD_REQUEST, "newer struct, new field used");
  expect(fwht_plan_create(&newer.known, NULL, FWHT_HOST, &plan) == FWHT_BAD_REQUEST,
         "a plan of a newer struct, new field used");
}

static void variants(void) {
  size_t i, cpu = 0;
  fwht_variant variant = {sizeof variant, NULL, NULL, 0};
  for (i = 0; i < fwht_variant_count(); ++i) {
    expect(fwht_get_variant(i, &variant) == FWHT_OK && variant.name[0] != 0 && variant.summary[0] != 0,
           "variant");
    if (strcmp(variant.name, "cpu") == 0) cpu += variant.on_device ? 2 : 1;
  }
  expect(cpu == 1, "cpu is listed once, on the host");
  expect(fwht_get_variant(i, &variant) == FWHT_BAD_REQUEST, "index out of range");
}

int main(void) {
  expect(fwht_abi_version() == FWHT_ABI_VERSION, "version of the interface");
  expect(fwht_version()[0] != 0 && strstr(fwht_build_info_json(), "\"commit\": ") != NULL, "build info");
  transforms();
  arrangements();
  spectra();
  strides();
  plans();
  refusals();
  operators();
  preparations();
  scales_in_memory();
  linear_layers();
  versions();
  variants();
  fwht_clear_plans();
  if (failures == 0) puts("the C interface of fwht: correct");
  return failures != 0;
}
