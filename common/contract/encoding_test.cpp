#include "common/contract/encoding.hpp"

#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "common/contract/problem.hpp"
#include "common/host/error.hpp"
#include "common/host/text.hpp"
#include "common/testing/refusal.hpp"

namespace fwht {
namespace {

std::string refusal(std::string_view text, std::int64_t n) {
  return bad_request_of([&] { validate(parse_encoding(text), n); });
}

TEST(Encoding, TextFormGoesThereAndBack) {
  for (const char* text : {"e4m3:row",
                           "e4m3:tensor",
                           "e4m3:tensor,vllm_static",
                           "e4m3:row,sglang_token",
                           "e4m3:128",
                           "e4m3:128,mn",
                           "e4m3:128,ue8m0",
                           "e4m3:128,ue8m0,mn,deepgemm",
                           "e4m3:128,ue8m0,packed",
                           "e4m3:128,deepseek_v32",
                           "e4m3:8192",
                           "e4m3:row,t8192",
                           "int8:row/f32",
                           "int8:128,mn",
                           "int4:64",
                           "int4:row,quarot",
                           "mxfp8",
                           "mxfp8:rceil",
                           "mxfp4",
                           "mxfp4:even",
                           "mxfp4:128x4,t8192,rceil",
                           "mxfp4:packed",
                           "nvfp4/f32",
                           "nvfp4:128x4"}) {
    EXPECT_EQ(to_string(parse_encoding(text)), text);
    EXPECT_EQ(refusal(text, 4096), "");
  }
  EXPECT_EQ(to_string(Encoding{}), "");
  // Defaults may be written, and words come in any order.
  EXPECT_EQ(parse_encoding("nvfp4:te,128x4"), parse_encoding("nvfp4:128x4"));
  EXPECT_EQ(parse_encoding("mxfp4:floor"), parse_encoding("mxfp4"));
  EXPECT_EQ(parse_encoding("mxfp4:32"), parse_encoding("mxfp4"));
  EXPECT_EQ(parse_encoding("e4m3:deepgemm,mn,ue8m0,128"), parse_encoding("e4m3:128,ue8m0,mn,deepgemm"));
}

TEST(Encoding, DefaultsFollowTheFormat) {
  const auto is = [](std::string_view text, Recipe recipe, ScaleType type) {
    const Encoding encoding = parse_encoding(text);
    return encoding.recipe == recipe && encoding.scale_type == type;
  };
  EXPECT_TRUE(is("e4m3:row", Recipe::vllm_token, ScaleType::f32));
  EXPECT_TRUE(is("e4m3:128", Recipe::vllm_group, ScaleType::f32));
  EXPECT_TRUE(is("e4m3:tensor", Recipe::vllm_tensor, ScaleType::f32));
  EXPECT_TRUE(is("e4m3:128,ue8m0", Recipe::vllm_group, ScaleType::ue8m0));
  EXPECT_TRUE(is("int8:row", Recipe::symmetric, ScaleType::f32));
  EXPECT_TRUE(is("int4:128", Recipe::symmetric, ScaleType::f32));
  EXPECT_TRUE(is("int4:128,quarot", Recipe::quarot, ScaleType::f16));
  EXPECT_TRUE(is("mxfp8", Recipe::floor, ScaleType::e8m0));
  EXPECT_TRUE(is("nvfp4", Recipe::te, ScaleType::e4m3));
  EXPECT_EQ(make_encoding(CodeFormat::mxfp4), parse_encoding("mxfp4"));
  EXPECT_EQ(make_encoding(CodeFormat::int8, {ScaleGranularity::Kind::group, 64}), parse_encoding("int8:64"));
  EXPECT_TRUE(needs_tensor_scale(parse_encoding("nvfp4")));
  EXPECT_TRUE(writes_scales(parse_encoding("nvfp4")));
  EXPECT_TRUE(needs_tensor_scale(parse_encoding("e4m3:tensor,vllm_static")));
  EXPECT_FALSE(writes_scales(parse_encoding("e4m3:tensor,vllm_static")));
  EXPECT_FALSE(needs_tensor_scale(parse_encoding("e4m3:tensor")));
}

// The group, the token and the row of the transform are three lengths.
TEST(Encoding, ShapesOfTheScales) {
  const auto shape = [](std::string_view text, std::int64_t rows, std::int64_t n) {
    return scale_shape(parse_encoding(text), rows, n);
  };
  EXPECT_EQ(shape("e4m3:128", 6, 1024), (ScaleShape{6, 8}));
  EXPECT_EQ(shape("e4m3:row", 6, 1024), (ScaleShape{6, 1}));
  EXPECT_EQ(shape("e4m3:tensor", 6, 1024), (ScaleShape{1, 1}));
  EXPECT_EQ(shape("e4m3:tensor,vllm_static", 6, 1024), (ScaleShape{0, 0}));
  EXPECT_EQ(shape("e4m3:8192", 128, 128), (ScaleShape{2, 1}));
  EXPECT_EQ(shape("e4m3:row,t8192", 128, 128), (ScaleShape{2, 1}));
  EXPECT_EQ(shape("nvfp4:t8192", 128, 128), (ScaleShape{2, 512}));
  EXPECT_EQ(shape("e4m3:256,t8192", 128, 128), (ScaleShape{2, 32}));
  EXPECT_EQ(scale_shape(Encoding{}, 6, 1024), (ScaleShape{0, 0}));
}

TEST(Encoding, BuffersHaveRoomForPadding) {
  const auto bytes = [](std::string_view text, std::int64_t rows, std::int64_t n) {
    return scale_buffer_bytes(parse_encoding(text), rows, n);
  };
  EXPECT_EQ(bytes("e4m3:128", 6, 1024), 6 * 8 * 4);
  EXPECT_EQ(bytes("e4m3:128,mn", 6, 1024), 8 * 8 * 4);
  EXPECT_EQ(bytes("e4m3:128,ue8m0", 6, 1024), 6 * 8 * 4);
  EXPECT_EQ(bytes("e4m3:128,ue8m0,packed", 6, 640), 8 * 2 * 4);
  EXPECT_EQ(bytes("nvfp4:128x4", 130, 1024), 256 * 64);
  EXPECT_EQ(bytes("mxfp4:128x4", 1, 32), 512);
  EXPECT_EQ(bytes("int4:128,quarot", 6, 1024), 6 * 8 * 2);
  EXPECT_EQ(bytes("e4m3:tensor,vllm_static", 6, 1024), 0);
}

// Every layout gives every scale a place of its own inside the buffer, and the places that the formats name.
TEST(ScaleLayout, PlacesAreDistinctAndInside) {
  for (const ScaleLayout layout :
       {ScaleLayout::row_major, ScaleLayout::mn_major, ScaleLayout::packed, ScaleLayout::swizzled_128x4}) {
    for (const auto& [rows, columns] : {std::pair{1, 1}, {5, 7}, {128, 4}, {131, 9}, {260, 16}}) {
      std::set<std::int64_t> taken;
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t column = 0; column < columns; ++column) {
          const std::int64_t position = scale_position(layout, row, column, rows, columns);
          EXPECT_GE(position, 0);
          EXPECT_LT(position, scale_positions(layout, rows, columns));
          EXPECT_TRUE(taken.insert(position).second) << row << " " << column;
        }
      }
    }
  }
  EXPECT_EQ(scale_position(ScaleLayout::row_major, 3, 2, 10, 8), 26);
  EXPECT_EQ(scale_position(ScaleLayout::mn_major, 3, 2, 10, 8), 2 * 12 + 3);
  // Byte 1 of word (5 >> 2) * 12 + 3.
  EXPECT_EQ(scale_position(ScaleLayout::packed, 3, 5, 10, 8), 4 * (12 + 3) + 1);
  // Row 161 = 128 + 32 + 1 and column 6 = 4 + 2 of 9 columns: tile 1 * 3 + 1, in it row 1, quarter 1, byte 2.
  EXPECT_EQ(scale_position(ScaleLayout::swizzled_128x4, 161, 6, 200, 9), 4 * 512 + 16 + 4 + 2);
}

TEST(Encoding, CountsBytes) {
  const Problem rows = parse_problem("bf16/n4096/r8>e4m3:row");
  EXPECT_EQ(rows.bytes_read(), 2 * 4096 * 8);
  EXPECT_EQ(rows.bytes_written(), 4096 * 8 + 8 * 4);
  EXPECT_EQ(parse_problem("bf16/n4096/r8>nvfp4").bytes_written(), 4096 * 8 / 2 + 4096 * 8 / 16);
  EXPECT_EQ(parse_problem("bf16/n4096/r8>int4:64").bytes_written(), 4096 * 8 / 2 + 4096 * 8 / 64 * 4);
  EXPECT_EQ(parse_problem("bf16/n4096/r8>e4m3:tensor").bytes_written(), 4096 * 8 + 4);
  EXPECT_EQ(parse_problem("bf16/n4096/r8").bytes_written(), 2 * 4096 * 8);
}

TEST(Encoding, RefusesWhatDoesNotFitInOneSentence) {
  EXPECT_EQ(refusal("e4m3:96", 4096), "encoding e4m3:96: group=96 must divide n=4096 or be a multiple of it");
  EXPECT_EQ(refusal("int8:0", 4096), "encoding int8:0: group=0 must be between 1 and 281474976710656");
  for (const std::int64_t n : {std::int64_t{0}, std::int64_t{-8}, std::int64_t{1} << 62}) {
    for (const char* text : {"e4m3:row", "e4m3:128", "e4m3:tensor", "mxfp8", "int4:row,t16"})
      EXPECT_NE(refusal(text, n).find(concat("n=", n, " must be between 1 and 281474976710656")),
                std::string::npos);
  }
  EXPECT_NE(refusal("int8:4611686018427387904", 64).find("group=4611686018427387904 must"),
            std::string::npos);
  EXPECT_NE(refusal("int8:row,t4611686018427387904", 64).find("token=4611686018427387904 must"),
            std::string::npos);
  for (const std::int64_t rows : {std::int64_t{-1}, std::int64_t{1} << 60, std::int64_t{1} << 62})
    EXPECT_THROW(validate(parse_encoding("mxfp8:128x4"), 64, rows), BadRequest) << rows;
  // The most that is accepted does not wrap: 2^48 elements, one scale each, 128 rows for one.
  for (const char* text : {"int8:1", "e4m3:1,ue8m0,packed", "e4m3:1,ue8m0,mn"}) {
    const std::int64_t most = std::int64_t{1} << 48;
    validate(parse_encoding(text), most, 1);
    EXPECT_GE(scale_buffer_bytes(parse_encoding(text), 1, most), most) << text;
  }
  EXPECT_EQ(refusal("mxfp4:64", 4096), "encoding mxfp4:64: mxfp4 has one scale for 32 elements");
  EXPECT_EQ(refusal("nvfp4:row", 4096), "encoding nvfp4:row: nvfp4 has one scale for 16 elements");
  EXPECT_EQ(refusal("mxfp8", 12), "encoding mxfp8: group=32 must divide n=12 or be a multiple of it");
  EXPECT_EQ(refusal("e4m3:row,t200", 128),
            "encoding e4m3:row,t200: a token of 200 elements must be a multiple of n=128");
  EXPECT_EQ(refusal("e4m3:512,t768", 256),
            "encoding e4m3:512,t768: a token of 768 elements must be a multiple of group=512");
  for (const std::string text : {"mxfp4:t0", "e4m3:row,t00"})
    EXPECT_EQ(refusal(text, 64), "encoding " + text + ": t=0 must be at least 1");
  EXPECT_EQ(refusal("mxfp8:even", 64), "encoding mxfp8:even: mxfp8 has no recipe even; it has floor, rceil");
  EXPECT_EQ(refusal("int8:row,te", 64), "encoding int8:row,te: int8 has no recipe te; it has symmetric");
  EXPECT_EQ(refusal("e4m3:row,vllm_static", 64),
            "encoding e4m3:row,vllm_static: the recipe vllm_static is only for one scale per tensor");
  EXPECT_EQ(refusal("e4m3:tensor,deepgemm", 64),
            "encoding e4m3:tensor,deepgemm: the recipe deepgemm is not for one scale per tensor");
  EXPECT_EQ(refusal("int8:row,ue8m0", 64),
            "encoding int8:row,ue8m0: the recipe symmetric has no scales in ue8m0");
  EXPECT_EQ(
      refusal("e4m3:128,packed", 128),
      "encoding e4m3:128,packed: the layout packed is for scales in ue8m0 or e8m0, not for scales in f32");
  EXPECT_EQ(refusal("mxfp4:mn", 128),
            "encoding mxfp4:mn: the layout mn is for scales of 4 bytes, not for scales in e8m0");
  EXPECT_EQ(refusal("e4m3:128,128x4", 128),
            "encoding e4m3:128,128x4: the layout 128x4 is for scales in e8m0 or e4m3, not for scales in f32");
  EXPECT_EQ(refusal("int8:tensor,mn", 64), "encoding int8:tensor,mn: one scale per tensor has no layout mn");
  EXPECT_EQ(refusal("int4:row", 3), "encoding int4:row: two codes share a byte, so n=3 must be even");
  EXPECT_EQ(refusal("int4:row,t16", 1), "");  // a quantizer alone: tokens of rows of one element
  EXPECT_NE(refusal("int4:row,t15", 1).find("must be even"), std::string::npos);
  EXPECT_NE(refusal("e4m3", 4096).find("names no scales"), std::string::npos);
  EXPECT_NE(refusal("e5m2:row", 4096).find("the form is"), std::string::npos);
  EXPECT_NE(refusal("int8:x", 4096).find("is no group size"), std::string::npos);
  EXPECT_NE(refusal("int8:t12x", 4096).find("is no length of a token"), std::string::npos);
  EXPECT_NE(refusal("int8:row,", 4096).find("is no group size"), std::string::npos);
  EXPECT_NE(refusal("", 4096).find("the form is"), std::string::npos);
  EXPECT_EQ(refusal("e4m3:row,64", 4096), "encoding 'e4m3:row,64' names its scales twice");
  EXPECT_EQ(refusal("mxfp4:rceil,even", 4096), "encoding 'mxfp4:rceil,even' names its recipe twice");
  EXPECT_EQ(refusal("e4m3:128,mn,packed", 4096), "encoding 'e4m3:128,mn,packed' names its layout twice");
  EXPECT_EQ(refusal("e4m3:128,ue8m0,ue8m0", 4096),
            "encoding 'e4m3:128,ue8m0,ue8m0' names its scale type twice");
  EXPECT_EQ(refusal("e4m3:row,t8192,t8192", 4096), "encoding 'e4m3:row,t8192,t8192' names its token twice");
}

TEST(Encoding, RefusesProblemsThatDoNotFit) {
  const auto refusal_of = [](std::string_view text) -> std::string {
    return bad_request_of([&] { parse_problem(text); });
  };
  EXPECT_EQ(refusal_of("bf16/n128/r128>e4m3:8192"), "");
  EXPECT_EQ(refusal_of("bf16/n128/r100>e4m3:8192"),
            "encoding e4m3:8192: rows=100 of n=128 are no whole tokens of 8192 elements");
  EXPECT_EQ(refusal_of("f16/n128/r100>int4:row,quarot"), "");
  EXPECT_EQ(refusal_of("bf16/n128/r100>int4:row,quarot"),
            "encoding int4:row,quarot: the recipe quarot quantizes values in f16, not in bf16");
  EXPECT_EQ(refusal_of("f16/n128/r100>int4:row,quarot/f32"),
            "encoding int4:row,quarot/f32: the recipe quarot quantizes values in f16, not in f32");
  EXPECT_NE(refusal_of("bf16/n128/r4/ldo131>nvfp4").find("the row stride of out=131 must be even"),
            std::string::npos);
  // Every part of an encoding tells problems apart.
  EXPECT_NE(parse_problem("bf16/n128/r8>e4m3:128"), parse_problem("bf16/n128/r8>e4m3:128,mn"));
  EXPECT_NE(hash_of(parse_problem("bf16/n128/r8>mxfp4")), hash_of(parse_problem("bf16/n128/r8>mxfp4:rceil")));
  EXPECT_NE(hash_of(parse_problem("bf16/n128/r8>mxfp4")), hash_of(parse_problem("bf16/n128/r8>mxfp4:t256")));
}

// What no text form stands for.
TEST(Encoding, RefusesUnknownEnumeratorsAndAGroupOfOtherScales) {
  using Kind = ScaleGranularity::Kind;
  const auto refused = [](auto change) {
    Encoding encoding = parse_encoding("e4m3:row");
    change(encoding);
    return bad_request_of([&] { validate(encoding, 64); }, "accepted");
  };
  EXPECT_EQ(refused([](Encoding&) {}), "accepted");
  EXPECT_EQ(refused([](Encoding& e) { e.scales.kind = static_cast<Kind>(7); }),
            "encoding e4m3: granularity 7 is unknown");
  EXPECT_NE(refused([](Encoding& e) { e.layout = static_cast<ScaleLayout>(9); }).find("layout 9 is unknown"),
            std::string::npos);
  EXPECT_NE(refused([](Encoding& e) {
              e.intermediate = static_cast<Intermediate>(9);
            }).find("intermediate 9 is unknown"),
            std::string::npos);
  for (const std::int64_t group : {-3, 64, 128}) {
    EXPECT_EQ(refused([&](Encoding& e) { e.scales.group = group; }),
              concat("encoding e4m3:row: group=", group, " must be 0 for one scale a row"));
  }
  const Encoding of_tensor = make_encoding(CodeFormat::e4m3, {Kind::tensor, 256});
  EXPECT_EQ(bad_request_of([&] { validate(of_tensor, 64); }),
            "encoding e4m3:tensor: group=256 must be 0 for one scale a tensor");
}

}  // namespace
}  // namespace fwht
