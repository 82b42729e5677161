#include "common/host/text_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "common/testing/refusal.hpp"

namespace fwht {
namespace {

namespace fs = std::filesystem;

std::string refusal(const fs::path& path, std::size_t most_bytes = 100) {
  return bad_request_of([&] { read_text_file(path, "the table", most_bytes); }, "accepted");
}

class TextFile : public testing::Test {
 protected:
  TextFile() {
    path = fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(path);
  }
  fs::path path;
};

TEST_F(TextFile, ReadsEveryByteUpToTheLimit) {
  const std::string text("a\r\n\0b\xff", 6);
  std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(read_text_file(path, "x", 6), text);
  EXPECT_EQ(refusal(path, 5), "the table: the file is longer than the limit of 5 bytes");
  std::ofstream(path, std::ios::trunc);
  EXPECT_EQ(read_text_file(path, "x"), "");
}

TEST_F(TextFile, SaysWhatIsNoFile) {
  EXPECT_EQ(refusal(path), "the table: there is no such file");
  EXPECT_EQ(refusal(testing::TempDir()), "the table: this is a folder, not a file");
  EXPECT_EQ(refusal("/dev/zero"), "the table: this is a device, not a file");
  std::ofstream(path) << "text";
  EXPECT_NE(refusal(path / "below").find("the table: "), std::string::npos) << "below a file";
}

TEST_F(TextFile, SaysWhatMayNotBeRead) {
  std::ofstream(path) << "text";
  if (geteuid() == 0) GTEST_SKIP() << "root may read every file";
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  EXPECT_EQ(refusal(path), "the table: the file cannot be read: Permission denied");
}

// What a shell hands over for <(command).
TEST_F(TextFile, ReadsAPipeThatIsOpen) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], "through the pipe", 16), 16);
  close(ends[1]);
  EXPECT_EQ(read_text_file("/dev/fd/" + std::to_string(ends[0]), "x"), "through the pipe");
  close(ends[0]);
}

// Nobody may ever write to it.
TEST_F(TextFile, RefusesANamedPipe) {
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(refusal(path), "the table: this is a named pipe, not a file");
}

TEST_F(TextFile, RefusesALinkToItself) {
  fs::create_symlink(path, path);
  EXPECT_NE(refusal(path).find("the table: the file cannot be read: "), std::string::npos) << refusal(path);
}

}  // namespace
}  // namespace fwht
