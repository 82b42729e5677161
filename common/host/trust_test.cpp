#include "common/host/trust.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace fwht {
namespace {

namespace fs = std::filesystem;

class Trust : public testing::Test {
 protected:
  Trust() {
    fs::remove_all(root);
    fs::create_directories(file.parent_path());
    std::ofstream(file) << "code";
  }

  const fs::path root =
      fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
  const fs::path file = root / "above" / "folder" / "library.so";
};

TEST_F(Trust, WhatEveryUserMayWriteIsNone) {
  EXPECT_EQ(why_not_trusted(file), "");
  for (const fs::path& one : {file, file.parent_path(), root / "above", root}) {
    const fs::perms before = fs::status(one).permissions();
    fs::permissions(one, before | fs::perms::others_write);
    EXPECT_EQ(why_not_trusted(file), one.string() + " can be written by every user");
    fs::permissions(one, before | fs::perms::others_write | fs::perms::sticky_bit);
    EXPECT_EQ(why_not_trusted(file).empty(), one == root || one == root / "above") << one;
    fs::permissions(one, before | fs::perms::group_write);
    EXPECT_EQ(why_not_trusted(file), "");
    fs::permissions(one, before);
  }
  EXPECT_EQ(why_not_trusted(root / "absent.so"), (root / "absent.so").string() + " cannot be looked at");
}

TEST_F(Trust, LinksAreFollowed) {
  const fs::path other = root / "other";
  fs::create_directories(other);
  fs::create_symlink(file, other / "link.so");
  fs::create_directory_symlink(file.parent_path(), other / "link");
  for (const fs::path& linked : {other / "link.so", other / "link" / "library.so"}) {
    EXPECT_EQ(why_not_trusted(linked), "");
    fs::permissions(root / "above", fs::perms::others_write, fs::perm_options::add);
    EXPECT_EQ(why_not_trusted(linked), (root / "above").string() + " can be written by every user") << linked;
    fs::permissions(root / "above", fs::perms::others_write, fs::perm_options::remove);
  }
}

TEST_F(Trust, WhatBelongsToAnotherUserIsNone) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  for (const fs::path& one : {file, file.parent_path()}) {
    ASSERT_EQ(chown(one.c_str(), 12345, 12345), 0);
    EXPECT_EQ(why_not_trusted(file), one.string() + " belongs to another user");
    ASSERT_EQ(chown(one.c_str(), geteuid(), getegid()), 0);
  }
  EXPECT_EQ(why_not_trusted(file), "");
}

}  // namespace
}  // namespace fwht
