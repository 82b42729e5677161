#include "variants/kokkos/module_places.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>

#include "common/host/error.hpp"

namespace fwht::kokkos {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModule = "libfwht_kokkos_host.so";

class ModulePlaces : public testing::Test {
 protected:
  ModulePlaces() {
    root = fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root);
    places = {"", (root / "program").string(), (root / "build/kokkos_modules").string(),
              (root / "lib/fwht").string()};
  }

  fs::path put(const char* folder) const {
    fs::create_directories(root / folder);
    std::ofstream(root / folder / kModule) << "module";
    return root / folder / kModule;
  }

  std::string refusal() const {
    try {
      return "accepted " + find_module(kModule, places).string();
    } catch (const BadRequest& error) {
      return std::string("bad request: ") + error.what();
    } catch (const std::runtime_error& error) {
      return error.what();
    }
  }

  fs::path root;
  ModuleFolders places;
};

// What an attacker plants where anybody may write: folders above the program were once searched.
TEST_F(ModulePlaces, NeverLooksAboveTheProgram) {
  for (const char* planted : {"kokkos_modules", "lib/x86_64-linux-gnu/fwht", "fwht", "."})
    put(planted);
  places.library = (root / "a/b/program").string();
  EXPECT_NE(refusal().find("was not found in any of: " + places.built + ", " + places.installed),
            std::string::npos)
      << refusal();
}

TEST_F(ModulePlaces, TakesTheRecordedOnesInTurn) {
  const fs::path installed = put("lib/fwht");
  EXPECT_EQ(find_module(kModule, places), installed);
  const fs::path built = put("build/kokkos_modules");
  EXPECT_EQ(find_module(kModule, places), built);
  const fs::path beside = put("moved/lib/fwht");
  places.library = (root / "moved/lib/libfwht.so.0").string();
  EXPECT_EQ(find_module(kModule, places), beside) << "a library that was moved with its modules";
}

TEST_F(ModulePlaces, ANamedFolderIsTheOnlyOne) {
  put("build/kokkos_modules");
  places.named = (root / "nowhere").string();
  EXPECT_EQ(refusal(), "bad request: FWHT_KOKKOS_MODULES=" + places.named + ": there is no " + kModule +
                           " in that folder");
  places.named = "build/kokkos_modules";
  EXPECT_EQ(refusal(), "bad request: FWHT_KOKKOS_MODULES=build/kokkos_modules must be an absolute path");
  const fs::path named = put("named");
  places.named = (root / "named").string();
  EXPECT_EQ(find_module(kModule, places), named);
}

TEST_F(ModulePlaces, RefusesWhatOthersCouldHaveWritten) {
  const fs::path built = put("build/kokkos_modules");
  const auto everybody = fs::perms::others_write;
  fs::permissions(built.parent_path(), everybody, fs::perm_options::add);
  EXPECT_NE(
      refusal().find("is not loaded: " + built.parent_path().string() + " can be written by every user"),
      std::string::npos)
      << refusal();
  fs::permissions(built.parent_path(), everybody, fs::perm_options::remove);
  fs::permissions(built, everybody, fs::perm_options::add);
  EXPECT_NE(refusal().find(built.string() + " can be written by every user"), std::string::npos);
  fs::permissions(built, everybody, fs::perm_options::remove);
  EXPECT_EQ(find_module(kModule, places), built);
}

TEST_F(ModulePlaces, RefusesWhatBelongsToAnotherUser) {
  const fs::path built = put("build/kokkos_modules");
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  ASSERT_EQ(chown(built.c_str(), 12345, 12345), 0);
  EXPECT_NE(refusal().find(built.string() + " belongs to another user"), std::string::npos) << refusal();
}

}  // namespace
}  // namespace fwht::kokkos
