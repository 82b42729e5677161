// For tests that run a program as a user does: each in a folder of its own, with its exit code and what it
// says.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace fwht {

struct Ended {
  int code = -1;  ///< -1: by a signal
  std::string out, err;
};

inline std::string text_of(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class ProgramFixture : public testing::Test {
 protected:
  /// In the folder; `environment` precedes the program on the command line. `out`: where its output goes.
  Ended run(const std::string& program, const std::string& arguments, const std::string& environment = "",
            const std::string& out = "out") {
    const std::string command = "cd '" + folder.string() + "' && " + environment + " '" + program + "' " +
                                arguments + " >" + out + " 2>err";
    const int status = std::system(command.c_str());
    Ended ended{WIFEXITED(status) ? WEXITSTATUS(status) : -1, text_of(folder / "out"),
                text_of(folder / "err")};
    std::filesystem::remove(folder / "out");
    std::filesystem::remove(folder / "err");
    return ended;
  }

  /// Exit code 2, one line that has `part` in it, nothing written.
  void expect_refused(const std::string& program, const std::string& arguments, const std::string& part,
                      const std::string& environment = "") {
    SCOPED_TRACE(arguments);
    const Ended ended = run(program, arguments, environment);
    EXPECT_EQ(ended.code, 2);
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
    EXPECT_NE(ended.err.find(part), std::string::npos) << ended.err;
    EXPECT_EQ(ended.out, "");
    EXPECT_TRUE(std::filesystem::is_empty(folder)) << "something was written";
  }

  const std::filesystem::path folder = new_folder();

 private:
  static std::filesystem::path new_folder() {
    const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
    std::filesystem::path path =
        std::filesystem::path(testing::TempDir()) / test->test_suite_name() / test->name();
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
    return path;
  }
};

}  // namespace fwht
